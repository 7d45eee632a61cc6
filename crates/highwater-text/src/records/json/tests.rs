use super::*;

fn start() -> Start<'static> {
    Start {
        path: Path::new("f"),
        line: 7,
        column: 10,
        element: Some(3),
    }
}

#[test]
fn places_are_those_of_the_file() {
    let said = |text: &str| object(text.as_bytes(), &start()).unwrap_err().to_string();
    assert!(said("{\"a\": x}").starts_with("f, line 7, column 17: element 3: "));
    assert!(said("{\"a\":\n x}").starts_with("f, line 8, column 2: element 3: "));
    assert!(said("{\"a\":\n\n").starts_with("f, line 9, column 1: element 3: "));
    assert!(said("[\n]").starts_with("f, element 3: expected an object"));
}

#[test]
fn weights() {
    let check = |text: String| weight::check(text.as_bytes()).map_err(|fault| fault.problem);
    let many = |part: &str, count: usize| part.repeat(count);
    // Commas, brackets and colons of texts weigh nothing.
    assert!(check(format!("{{\"a\": \"{}\"}}", many(",[:{", 500_000))).is_ok());
    assert!(check(format!("{{\"a\": \"{}\"}}", many("\\\",", 500_000))).is_ok());
    assert!(check(format!("[{}0]", many("0,", (1 << 17) - 1))).is_ok());
    let long = check(format!("[{}0]", many("0,", 1 << 17))).unwrap_err();
    assert!(long.contains("more than 131072"), "{long}");
    // Each list is counted by itself.
    let half = format!("[{}0]", many("0,", 1 << 16));
    assert!(check(format!("[{half},{half},{half}]")).is_ok());
    let heavy = check(format!("[{half},{}]", many("[],", 60_000))).unwrap_err();
    assert!(heavy.contains("more than 32 MiB"), "{heavy}");
    // What is no JSON is left to the parser.
    assert!(check(many("]", 1000)).is_ok());
    assert!(check(many("{\"", 1000)).is_ok());
    assert!(check(many("[", 1_000_000)).is_ok());
}

#[test]
fn what_ends_too_early_has_other_faults_first() {
    let said = |text: &[u8]| before_end(text, &start()).map(|error| error.to_string());
    assert_eq!(said(b"{\"a\": [1, 2"), None);
    assert_eq!(said(b"{\"a\": \"\xc3"), None);
    let other = said(b"{'a': [1, 2").unwrap();
    assert!(other.contains("a single quote"), "{other}");
    let other = said(b"{\"a\": \"\xff\xff").unwrap();
    assert!(other.contains("not UTF-8"), "{other}");
}
