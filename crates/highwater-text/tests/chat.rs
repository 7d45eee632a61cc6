//! Chat templates and what is learnt of conversations, beside transformers: `fixtures/make_chat.py` made the cases.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test says what went wrong by stopping there"
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use highwater_memory::Files;
use highwater_memory::files::MemoryFiles;
use highwater_models::Tokenizer;
use highwater_text::{
    ChatTemplate, Conversation, Encoder, Example, FieldMap, Learn, Place, Reader, SpecialTokens,
    TextError, records::Record, turns,
};
use serde_json::{Map, Value, json};

fn write(files: &dyn Files, path: &str, text: &str) {
    let mut file = files.create(Path::new(path)).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn cases() -> Value {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/chat.json");
    #[allow(
        clippy::disallowed_methods,
        reason = "the cases of another file are tried by hand"
    )]
    let path = std::env::var("HIGHWATER_CHAT").unwrap_or_else(|_| own.to_owned());
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A conversation as it comes out of a record.
fn conversation(case: &Value) -> Conversation {
    let fields = json!({"messages": case["messages"], "tools": case["tools"]});
    let Value::Object(fields) = fields else {
        panic!("no object")
    };
    let place = Place::of("case");
    let record = Record { place, fields };
    let reader = Reader::detect(&record, FieldMap::default(), true).unwrap();
    match reader.read(record).unwrap() {
        Example::Chat(conversation) => conversation,
        other => panic!("{other:?}"),
    }
}

fn spans(case: &Value) -> Vec<Range<usize>> {
    let each = case["spans"].as_array().unwrap().iter();
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    each.map(|span| number(&span[0])..number(&span[1]))
        .collect()
}

/// What there is to compare a case with.
struct Beside<'a> {
    tokenizer: &'a Tokenizer,
    special: &'a SpecialTokens,
    templates: &'a Value,
}

impl Beside<'_> {
    /// What became of a case, or what is not as in transformers.
    fn compare(&self, case: &Value) -> Result<&'static str, String> {
        let name = case["name"].as_str().unwrap();
        let which = usize::from(case["tagged"] == false);
        let source = self.templates[name][which].as_str().unwrap();
        let template = ChatTemplate::parse(name.to_owned(), source, self.special);
        let template = template.map_err(|error| error.to_string())?;
        let conversation = conversation(case);
        let rendered = template.render(&conversation, false);
        if let Some(refused) = case["refused"].as_str() {
            return match rendered {
                Err(error) if error.to_string().contains(refused) => Ok("refused"),
                other => Err(format!("{other:?}, and not: {refused}")),
            };
        }
        let rendered = rendered.map_err(|error| error.to_string())?;
        let text = case["text"].as_str().unwrap();
        same(&rendered, text)?;
        let prompt = template.render(&conversation, true);
        same(&prompt.unwrap(), case["prompt"].as_str().unwrap())?;
        let learned = match turns(&template, &conversation) {
            Ok((found, learned)) => {
                same(&found, text)?;
                learned
            }
            Err(TextError::Template { problem, .. }) if problem.contains("cannot be told") => {
                return Ok("unclear");
            }
            Err(error) => return Err(error.to_string()),
        };
        if case["spans"].is_null() {
            return Ok("written");
        }
        let said = |spans: &[Range<usize>]| {
            let each = spans.iter().map(|span| text[span.clone()].to_owned());
            each.collect::<Vec<_>>()
        };
        same(&said(&learned), &said(&spans(case)))?;
        same(&learned, &spans(case))?;
        let encoder = Encoder::new(self.tokenizer, Some(template), None, Learn::Answers).unwrap();
        let document = encoder
            .encode(&Example::Chat(conversation))
            .unwrap()
            .remove(0);
        let numbers = |name: &str| {
            let each = case[name].as_array().unwrap().iter();
            each.map(|n| n.as_u64().unwrap() as u32).collect::<Vec<_>>()
        };
        same(&document.tokens, &numbers("ids"))?;
        let mask: Vec<_> = document
            .learned
            .iter()
            .map(|&learned| u32::from(learned))
            .collect();
        same(&mask, &numbers("mask"))?;
        Ok(["tagged", "found"][which])
    }
}

fn same<T: PartialEq<U> + std::fmt::Debug + ?Sized, U: std::fmt::Debug + ?Sized>(
    found: &T,
    expected: &U,
) -> Result<(), String> {
    let told = || format!("found    {found:?}\nexpected {expected:?}");
    (found == expected).then_some(()).ok_or_else(told)
}

#[test]
fn conversations_are_written_and_learnt_as_in_transformers() {
    let all = cases();
    let files = MemoryFiles::new();
    write(&files, "/tokenizer.json", &all["tokenizer"].to_string());
    write(
        &files,
        "/tokenizer_config.json",
        &all["special"].to_string(),
    );
    let special = SpecialTokens::load(&files, Path::new("/")).unwrap();
    let tokenizer = Tokenizer::load(&files, Path::new("/tokenizer.json")).unwrap();
    let beside = Beside {
        tokenizer: &tokenizer,
        special: &special,
        templates: &all["templates"],
    };
    let (mut counts, mut wrong) = (BTreeMap::<_, usize>::new(), BTreeMap::new());
    for case in all["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        match beside.compare(case) {
            Ok(became) => *counts.entry((name, became)).or_default() += 1,
            Err(problem) => drop(wrong.insert((name, case["tagged"] == true), problem)),
        }
    }
    println!("{counts:?}");
    let told = wrong
        .iter()
        .map(|(case, problem)| format!("{case:?}:\n{problem}\n"));
    assert!(wrong.is_empty(), "{}", told.collect::<String>());
    let of = |kind: &str| {
        let counts = counts.iter().filter(|((_, what), _)| *what == kind);
        counts.map(|(_, count)| count).sum::<usize>()
    };
    assert!(of("found") > of("unclear") && of("tagged") > 0);
}

#[test]
fn what_a_record_leaves_out_is_not_learnt() {
    let template = ChatTemplate::chatml(&SpecialTokens::default()).unwrap();
    let fields = json!({"messages": [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"},
    ]});
    let learned = |fields: Value| {
        let conversation = conversation(&fields);
        let (text, spans) = turns(&template, &conversation).unwrap();
        spans
            .iter()
            .map(|span| text[span.clone()].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(learned(fields), ["d<|im_end|>"]);
}

#[test]
fn hostile_templates_are_stopped() {
    let special = SpecialTokens::default();
    let conversation = Conversation::of([("user", "hello")]);
    for (source, expected) in [
        (
            "{% for i in range(100000) %}{% for j in range(100000) %}a{% endfor %}{% endfor %}",
            "ran out of fuel",
        ),
        ("{{ 'a' * 1000000000 }}", "fuel"),
        (
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "recursion",
        ),
        ("{% include 'file' %}", "file"),
        ("{{ raise_exception('no') }}", "no"),
        ("{{ messages[0].content.nothing() }}", "nothing"),
        ("{% for m in messages %}", "unexpected end"),
        ("{{ strftime_now('%Q') }}", "%Q"),
    ] {
        let parsed = ChatTemplate::parse("a file".to_owned(), source, &special);
        let error = match parsed {
            Ok(template) => match template.render(&conversation, false) {
                Ok(text) => panic!("{source}: {} bytes", text.len()),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        assert!(error.starts_with("a file: the chat template: "), "{error}");
        assert!(error.contains(expected), "{source}: {error}");
    }
}

#[test]
fn turns_that_cannot_be_told_apart_are_refused() {
    // What is said last is written otherwise, from its beginning on.
    let source = "{% for m in messages %}{% if loop.last %}[last {{ messages | length }}]{% endif %}\
                  {{ m.role }}: {{ m.content }}\n{% endfor %}";
    let template = ChatTemplate::parse("t".to_owned(), source, &SpecialTokens::default()).unwrap();
    let conversation = Conversation::of([
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("assistant", "d"),
    ]);
    let error = turns(&template, &conversation).unwrap_err();
    assert!(error.to_string().contains("(message 2)"), "{error}");
    assert!(error.hint().unwrap().contains("--loss-on all"));
    let mut private = Conversation::of([("user", "a\u{10FFFC}"), ("assistant", "b")]);
    private.variables = Map::new();
    let chatml = ChatTemplate::chatml(&SpecialTokens::default()).unwrap();
    assert!(turns(&chatml, &private).is_err());
}
