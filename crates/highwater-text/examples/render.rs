//! Renders chat templates, one on each line of the standard input, for comparisons with Jinja2: see
//! `fixtures/fuzz_templates.py`.
//!
//! A line is an object with `template` and `messages`, perhaps with `variables` for the template, `prompt` to ask for
//! an answer, and `now`, such as `2024-07-26T12:34:56`. The line that answers it has `text` and, in bytes, `spans` of
//! the assistant's turns; or `error`, with `refused` if it is something that Jinja2 does and this program does not.

use std::io::{BufRead, Write};

use chrono::NaiveDateTime;
use highwater_text::{ChatTemplate, Conversation, SpecialTokens, TextError, turns};
use serde_json::{Map, Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line?)?;
        let answer = answer(&case).unwrap_or_else(|error| {
            let text = error.to_string();
            json!({"error": text, "refused": text.contains("not supported"), "hint": error.hint()})
        });
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

fn answer(case: &Value) -> Result<Value, TextError> {
    let source = case["template"].as_str().unwrap_or_default();
    let mut template =
        ChatTemplate::parse("template".to_owned(), source, &SpecialTokens::default())?;
    let now = case["now"]
        .as_str()
        .and_then(|now| now.parse::<NaiveDateTime>().ok());
    if let Some(now) = now {
        template = template.at(now);
    }
    let roles: Vec<_> = case["messages"].as_array().into_iter().flatten().collect();
    let mut conversation = Conversation::of(roles.iter().map(|_| ("user", "")));
    conversation.messages = roles.into_iter().cloned().collect();
    conversation.variables = match &case["variables"] {
        Value::Object(variables) => variables.clone(),
        _ => Map::new(),
    };
    let text = template.render(&conversation, case["prompt"] == true)?;
    let spans = case["spans"]
        .as_bool()
        .map(|_| match turns(&template, &conversation) {
            Ok(marked) => {
                let spans = marked
                    .turns
                    .iter()
                    .map(|turn| json!([turn.range.start, turn.range.end, turn.open]));
                json!(spans.collect::<Vec<_>>())
            }
            Err(error) => error.to_string().into(),
        });
    Ok(json!({"text": text, "spans": spans}))
}
