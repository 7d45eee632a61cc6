//! The name that may have been meant by one that a parser does not know.

/// What a parser says of a key that it does not know, with the name that may have been meant.
pub(crate) fn with_nearest(problem: &str) -> String {
    let meant = || {
        let (_, told) = problem.split_once("unknown field `")?;
        let (key, known) = told.split_once('`')?;
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        highwater_models::config::nearest(key, &known)
    };
    match meant() {
        Some(name) => format!("{problem}; did you mean `{name}`?"),
        None => problem.to_owned(),
    }
}
