//! What records say: formats, fields that are refused, and what is taken for what.

use highwater_text::Tokenizer;
use highwater_text::records::Record;
use highwater_text::{
    ChatTemplate, Encoder, Example, FieldMap, Learn, Place, Reader, SpecialTokens, TextError,
};
use serde_json::{Value, json};

fn read(fields: Value) -> Result<Example, TextError> {
    let Value::Object(fields) = fields else {
        panic!("no object")
    };
    let place = Place::of("data");
    let record = Record { place, fields };
    Reader::detect(&record, FieldMap::default(), true)?.read(record)
}

#[test]
fn tokens_are_learnt_as_their_labels_say() {
    let tokens = |fields| match read(fields).unwrap() {
        Example::Tokens { ids, learned } => (ids, learned),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        tokens(json!({"input_ids": [5, 6, 7], "labels": [-100, 6, 7]})),
        (vec![5, 6, 7], Some(vec![false, true, true]))
    );
    // What is padded is taken off.
    assert_eq!(
        tokens(
            json!({"input_ids": [5, 6, 0], "attention_mask": [1, 1, 0], "labels": [5, 6, -100]})
        ),
        (vec![5, 6], Some(vec![true, true]))
    );
    for name in ["completion_mask", "assistant_masks"] {
        let fields = json!({"input_ids": [5, 6], name: [false, true]});
        assert_eq!(tokens(fields), (vec![5, 6], Some(vec![false, true])));
    }
    // All masks count, as in TRL.
    let fields = json!({"input_ids": [5, 6, 7, 8], "labels": [-100, 6, 7, 8], "completion_mask": [1, 0, 1, 1],
        "assistant_masks": [1, 1, 1, 0]});
    let learned = Some(vec![false, false, true, false]);
    assert_eq!(tokens(fields), (vec![5, 6, 7, 8], learned));
    for (fields, told) in [
        (
            json!({"input_ids": [1, 2], "labels": [1, 9]}),
            "labels[1] is 9, and input_ids[1] is 2",
        ),
        (
            json!({"input_ids": [1, 2], "labels": [1]}),
            "1 numbers for 2 input_ids",
        ),
        (json!({"input_ids": [1, -2]}), "input_ids[1] is -2"),
        (
            json!({"input_ids": [1, 4_294_967_296_u64]}),
            "input_ids[1] is 4294967296",
        ),
    ] {
        let error = read(fields).unwrap_err().to_string();
        assert!(
            error.starts_with("data: ") && error.contains(told),
            "{error}"
        );
    }
}

#[test]
fn pairs_are_told_by_fields_or_by_what_they_share() {
    let turn = |role: &str, content: &str| json!({"role": role, "content": content});
    let lists = |prompt: Value| {
        let mut fields = json!({
            "chosen": [turn("user", "a"), turn("assistant", "b")],
            "rejected": [turn("user", "a"), turn("assistant", "c")],
        });
        if !prompt.is_null() {
            fields["prompt"] = prompt;
        }
        read(fields).unwrap()
    };
    // A text that says again what is asked changes nothing.
    assert_eq!(lists(Value::Null), lists("a".into()));
    let texts = read(json!({"chosen": "ask: yes please", "rejected": "ask: yes no"})).unwrap();
    let part = |completion: &str| Example::Completion {
        prompt: "ask: yes".to_owned(),
        completion: completion.to_owned(),
    };
    assert_eq!(
        texts,
        Example::Pair(Box::new([part(" please"), part(" no")]))
    );
}

#[test]
fn what_is_too_much_is_refused() {
    let user = json!([{"role": "user", "content": "a"}]);
    let zeros = vec![0; 100_000];
    for (fields, told) in [
        (
            json!({"messages": user, "documents": [zeros]}),
            "an example that is not text may need 4",
        ),
        (
            json!({"messages": user, "tools": "0".repeat(1 << 20)}),
            "tools is a text of 1048576 bytes",
        ),
        (
            json!({"prompt": "a", "completion": "b".repeat(5 << 20)}),
            "it needs 5 MiB",
        ),
    ] {
        let error = read(fields).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let special = SpecialTokens::default();
    for source in [
        format!("{{{{ {}a }}}}", "not ".repeat(10_000)),
        format!("{{% if {}a %}}{{% endif %}}", "a.".repeat(10_000)),
        " ".repeat(1 << 20),
    ] {
        let error = ChatTemplate::parse("t".to_owned(), &source, &special).unwrap_err();
        let told = ["are read", "within each other", "operators"];
        let error = error.to_string();
        assert!(told.iter().any(|told| error.contains(told)), "{error}");
    }
}

#[test]
fn texts_and_completions_end() {
    let tokenizer = Tokenizer::Bytes;
    let encoder = Encoder::new(&tokenizer, None, Some(7), Learn::Answers).unwrap();
    let document = encoder
        .encode(&read(json!({"text": "ab"})).unwrap())
        .unwrap()
        .remove(0);
    assert_eq!(
        (document.tokens, document.learned),
        (vec![97, 98, 7], vec![true; 3])
    );
    let fields = json!({"prompt": "a", "completion": "b"});
    let document = encoder.encode(&read(fields).unwrap()).unwrap().remove(0);
    assert_eq!(document.tokens, [97, 98, 7]);
    assert_eq!(document.learned, [false, true, true]);
}
