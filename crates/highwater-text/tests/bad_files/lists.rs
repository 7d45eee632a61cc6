//! Lists of JSON.

use super::Want::{Bad, Fine};
use super::check;

const LIST: &str = "[\n  {\"text\": \"a\"},\n  {\"text\": \"b\"}\n]\n";

#[test]
fn lists_that_are_read() {
    let turns = r#"{"messages": [{"role": "user", "content": "a"}]}"#;
    check(cases! { "a.json";
        "over lines", LIST => Fine(2);
        "on one line", LIST.replace('\n', "") => Fine(2);
        "without blanks", "[{\"a\":1},{\"a\":2},{\"a\":3}]" => Fine(3);
        "CRLF", LIST.replace('\n', "\r\n") => Fine(2);
        "BOM", format!("\u{feff}{LIST}") => Fine(2);
        "blanks around", format!("\n\n \t{LIST}\n\n  ") => Fine(2);
        "brackets and quotes in strings", r#"[{"a": "]},{[\"\\"}, {"a": "\\\"["}]"# => Fine(2);
        "lists within", r#"[{"a": [[1, {"b": [2]}]]}, {}]"# => Fine(2);
        "lines of JSON", "{\"a\": 1}\n{\"a\": 2}\n" => Fine(2);
        "objects over lines", "{\n\"a\": 1\n}\n\n{\n\"a\": 2\n}" => Fine(2);
        "objects side by side", "{\"a\": 1}{\"a\": 2} {\"a\": 3}" => Fine(3);
        "one conversation", turns => Fine(1);
        "one object", r#"{"text": "a", "tags": ["x", "y"], "list": []}"# => Fine(1);
        "one document", r#"{"title": "a", "body": [{"text": "b"}, {"text": "c"}]}"# => Fine(1);
        "two objects with lists", r#"{"data": [{"a": 1}]}{"data": [{"a": 2}]}"# => Fine(2);
    });
    check(cases! { "A.Json";
        "capital letters", LIST => Fine(2);
    });
}

#[test]
fn lists_that_are_none() {
    check(cases! { "a.json";
        "nothing", "" => Bad(0, &["the file is empty"]);
        "an empty list", "[]" => Bad(0, &["a.json: there are no examples in it"]);
        "an empty list over lines", " [\n\n ] \n" => Bad(0, &["there are no examples"]);
        "blanks alone", "  \n\n" => Bad(0, &["there are no examples"]);
        "an object around a list", r#"{"version": "1.0", "data": [{"text": "a"}]}"#
            => Bad(0, &["a.json: expected a list of objects, found an object with a list named \"data\"", "json.dump(data[\"data\"], file)"]);
        "an object with nothing but a list", r#"{"body": [{"text": "a"}]}"#
            => Bad(0, &["an object with a list named \"body\""]);
        "a string", "\"hello\"" => Bad(0, &["element 1: expected an object like", "found a string"]);
        "a number", "12" => Bad(0, &["element 1: expected an object", "found a number"]);
        "strings", "[\"a\", \"b\"]" => Bad(0, &["a.json, element 1: expected an object", "give it a name"]);
        "a string among objects", "[{\"a\": 1}, \"b\"]"
            => Bad(1, &["element 2: expected an object", "a string"]);
        "numbers", "[1, 2]" => Bad(0, &["element 1", "found a number"]);
        "null among objects", "[{\"a\": 1}, null]" => Bad(1, &["element 2", "found null"]);
        "lists in the list", "[[{\"a\": 1}]]" => Bad(0, &["element 1", "found a list"]);
        "a web page", "<html>" => Bad(0, &["a web page"]);
    });
}

#[test]
fn lists_that_are_broken() {
    check(cases! { "a.json";
        "a comma too many", "[{\"a\": 1},\n]"
            => Bad(1, &["a.json, line 2, column 1", "a comma with nothing after it"]);
        "a comma first", "[,{\"a\": 1}]"
            => Bad(0, &["line 1, column 2: element 1: invalid JSON: expected value"]);
        "two commas", "[{\"a\": 1},,{\"a\": 2}]" => Bad(1, &["line 1, column 11: element 2: invalid JSON"]);
        "no comma", "[{\"a\": 1}\n {\"a\": 2}]"
            => Bad(1, &["line 2, column 2", "expected , or ] after element 1, found {"]);
        "a semicolon", "[{\"a\": 1}; {\"a\": 2}]" => Bad(1, &["column 10", "found ;"]);
        "the wrong bracket", "[{\"a\": 1}}" => Bad(1, &["expected , or ] after element 1, found }"]);
        "a bracket alone", "[" => Bad(0, &["a.json, element 1: the file ends in the middle of this element"]);
        "a closing bracket alone", "]" => Bad(0, &["element 1: invalid JSON"]);
        "cut in an element", &LIST[..30]
            => Bad(1, &["element 2: the file ends in the middle of this element, which began on line 3", "copy the file again"]);
        "cut after an element", &LIST[..17]
            => Bad(1, &["the file ends in the middle of the list, after element 1"]);
        "cut after a comma", &LIST[..18]
            => Bad(1, &["element 2: the file ends in the middle of this element"]);
        "cut before the end", LIST.trim_end().trim_end_matches(']') => Bad(2, &["after element 2"]);
        "cut in a character", b"[{\"a\": \"\xc3" => Bad(0, &["element 1: the file ends in the middle"]);
        "two lists", "[{\"a\": 1}]\n[{\"a\": 2}]"
            => Bad(1, &["line 2, column 1: something follows the list"]);
        "something after", "[{\"a\": 1}] x" => Bad(1, &["line 1, column 12: something follows"]);
        "commas without a list", "{\"a\": 1},\n{\"a\": 2}"
            => Bad(1, &["line 1, column 9: a comma between objects"]);
        "NaN far on", "[{\"a\": 1},\n\n {\"a\":\n  NaN}]"
            => Bad(1, &["a.json, line 4, column 3: element 2: invalid JSON: NaN is not a number"]);
        "NaN on the line of another", "[{\"a\": 1}, {\"a\": NaN}]"
            => Bad(1, &["line 1, column 18: element 2"]);
        "single quotes", "[{'a': 1}]"
            => Bad(0, &["line 1, column 3: element 1: invalid JSON: a single quote"]);
        "single quotes and a quote", "[{'a': \"it's\"}]" => Bad(0, &["a single quote"]);
        "a string that goes on", "[{\"a\": \"b}, {\"a\": 1}]"
            => Bad(0, &["element 1", "invalid JSON: expected `,` or `}`"]);
        "not UTF-8", b"[{\"a\": \"caf\xe9\"}]"
            => Bad(0, &["line 1, column 12: element 1: byte 0xe9 is not UTF-8"]);
        "a comment", "[\n// x\n{\"a\": 1}]"
            => Bad(0, &["line 2, column 1: element 1: invalid JSON: JSON has no comments"]);
        "a name without quotes", "[{a: 1}]" => Bad(0, &["key must be a string"]);
        "Python", "[{\"a\": None}]" => Bad(0, &["None is of Python"]);
    });
}

#[test]
fn lists_that_are_too_much() {
    let long = "x".repeat(9 << 20);
    let deep = "[".repeat(1_000_000);
    check(cases! { "a.json";
        "a long element", format!("[{{\"a\": 1}}, {{\"a\": \"{long}\"}}]")
            => Bad(1, &["element 2: the element is longer than 8 MiB", "split long texts"]);
        "a long object around a list", format!("{{\"data\": [{{\"a\": \"{long}\"}}]}}")
            => Bad(0, &["element 1: the element is longer than 8 MiB", "save a list that is within an object by itself"]);
        "a quote left open", format!("[{{'a': 'b\"}}, {}", "{'a': 'b'},".repeat(1 << 20))
            => Bad(0, &["a single quote"]);
        "very deep", format!("[{deep}") => Bad(0, &["element 1", "more than 127 levels"]);
        "very deep objects", "[{\"a\":".repeat(300_000) => Bad(0, &["more than 127 levels"]);
        "a long list within", format!("[{{\"a\": [{}0]}}]", "0,".repeat(131_072))
            => Bad(0, &["element 1: a list or object of more than 131072 values"]);
    });
    let many = "{\"text\": \"0123456789\"},".repeat(200_000);
    check(cases! { "a.json";
        "many elements", format!("[{many}{{}}]") => Fine(200_001);
        "many objects", many.replace(',', " ") => Fine(200_000);
    });
}
