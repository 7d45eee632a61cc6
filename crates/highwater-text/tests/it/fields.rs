//! Fields of records that other programs give a meaning to: read as they mean it, or refused by name.

use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_memory::files::MemoryFiles;
use highwater_text::Tokenizer;
use highwater_text::data::{Progress, Reads};
use highwater_text::prepare::{Examples, Preparation};
use highwater_text::{ChatTemplate, Encoder, FieldMap, Learn, SpecialTokens};
use serde_json::{Value, json};

/// What is learnt of the records of a file, each in brackets where it is; or what is said against them.
fn learnt(name: &str, text: &str) -> Result<(Vec<String>, Option<String>), String> {
    let files: Arc<dyn Files> = Arc::new(MemoryFiles::new());
    let path = Path::new("/").join(name);
    files
        .create(&path)
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let tokenizer = Tokenizer::Bytes;
    let template = ChatTemplate::chatml(&SpecialTokens::default()).unwrap();
    let encoder = Encoder::new(&tokenizer, Some(template), None, Learn::Answers).unwrap();
    let preparation = Preparation {
        data: &path,
        held_out: None,
        reads: Reads::Training,
        progress: Progress::default(),
        map: FieldMap::default(),
        vocab_size: 256,
        length: 4096,
        packing: true,
        pairs: text.contains("rejected"),
        threads: 1,
    };
    let told = |error: highwater_text::TextError| match error.hint() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    };
    let mut examples = Examples::open(&files, &encoder, &preparation).map_err(told)?;
    let mut found = Vec::new();
    while let Some(example) = examples.next() {
        let (place, example) = example.map_err(told)?;
        for document in examples.encode(&place, &example).map_err(told)? {
            let mut shown: Vec<u8> = Vec::new();
            let mut before = false;
            for (&token, &learned) in document.tokens.iter().zip(&document.learned) {
                if learned != before {
                    shown.push(if learned { b'[' } else { b']' });
                }
                before = learned;
                shown.push(token as u8);
            }
            if before {
                shown.push(b']');
            }
            let shown = String::from_utf8(shown).unwrap();
            let shown = shown
                .replace("<|im_start|>", "<")
                .replace("<|im_end|>", ">");
            found.push(shown);
        }
    }
    Ok((found, examples.unread().describe()))
}

fn one(record: &Value) -> Result<Vec<String>, String> {
    learnt("d.jsonl", &record.to_string()).map(|(found, _)| found)
}

fn said(record: &Value, told: &str) {
    let error = one(record).expect_err(&record.to_string());
    assert!(error.starts_with("/d.jsonl, line 1: "), "{error}");
    assert!(error.contains(told), "{error}");
}

fn turn(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

#[test]
fn verdicts_on_answers_are_refused() {
    for (name, value) in [
        ("label", json!(false)),
        ("label", json!(true)),
        ("label", json!("False")),
        ("label", json!(0)),
        ("kto_tag", json!(true)),
    ] {
        for mut record in [
            json!({"prompt": "q", "completion": "a"}),
            json!({"prompt": [turn("user", "q")], "completion": [turn("assistant", "a")]}),
            json!({"messages": [turn("user", "q"), turn("assistant", "a")]}),
            json!({"instruction": "q", "output": "a"}),
        ] {
            record[name] = value.clone();
            said(&record, &format!("{name} is {value}"));
            said(&record, "KTO");
        }
        let record = json!({"text": "some text", name: value});
        one(&record).unwrap();
    }
    one(&json!({"prompt": "q", "completion": "a", "label": "science"})).unwrap();
}

#[test]
fn turns_before_an_instruction_are_read() {
    let history = json!([["hello", "hi"], ["how", "so"]]);
    let whole = "<user\nhello>\n<assistant\n[hi>]\n<user\nhow>\n<assistant\n[so>]\n<user\nand?>\n<assistant\n[no>]\n";
    let record = json!({"instruction": "and?", "output": "no", "history": history});
    assert_eq!(one(&record).unwrap(), [whole]);
    let as_text = json!({"instruction": "and?", "output": "no", "history": history.to_string()});
    assert_eq!(one(&as_text).unwrap(), [whole]);
    for nothing in [json!(null), json!([]), json!("")] {
        let record = json!({"instruction": "and?", "output": "no", "history": nothing});
        assert_eq!(one(&record).unwrap(), ["<user\nand?>\n<assistant\n[no>]\n"]);
    }
    let bad = |history: Value| json!({"instruction": "and?", "output": "no", "history": history});
    said(&bad(json!([["hello"]])), "history[0] is not such a pair");
    said(&bad(json!("[[")), "history is a string that is not JSON");
    for mut record in [
        json!({"prompt": "q", "completion": "a"}),
        json!({"messages": [turn("user", "q"), turn("assistant", "a")]}),
        json!({"prompt": "q", "chosen": "a", "rejected": "b"}),
    ] {
        record["history"] = history.clone();
        said(&record, "history next to ");
    }
}

#[test]
fn names_that_come_twice_are_refused_by_line() {
    for (name, text, place) in [
        (
            "d.jsonl",
            "{\"text\": \"ok ok\"}\n{\"text\": \"a\", \"text\": \"b\"}",
            "/d.jsonl, line 2, column",
        ),
        (
            "d.json",
            "[{\"text\": \"ok ok\"},\n{\"text\": \"a\", \"text\": \"b\"}]",
            "/d.json, line 2, column",
        ),
        (
            "d.jsonl",
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"content\": \"b\"}]}",
            "/d.jsonl, line 1, column",
        ),
    ] {
        let error = learnt(name, text).unwrap_err();
        assert!(error.starts_with(place), "{error}");
        assert!(
            error.contains("two values of an object are named"),
            "{error}"
        );
    }
}

#[test]
fn pairs_have_to_ask_the_same() {
    let [u, v] = [turn("user", "q"), turn("user", "other")];
    let [a, b] = [turn("assistant", "yes"), turn("assistant", "no")];
    let good = json!({"chosen": [u, a], "rejected": [u, b]});
    let both = [
        "<user\nq>\n<assistant\n[yes>\n]",
        "<user\nq>\n<assistant\n[no>\n]",
    ];
    assert_eq!(one(&good).unwrap(), both);
    // The same by other conventions.
    for record in [
        json!({"prompt": [u], "chosen": [a], "rejected": [b]}),
        json!({"prompt": "q", "chosen": [u, a], "rejected": [u, b]}),
        json!({"messages": [u], "chosen": a, "rejected": b}),
        json!({"conversations": [{"from": "human", "value": "q"}], "chosen": {"from": "gpt", "value": "yes"}, "rejected": {"from": "gpt", "value": "no"}}),
        json!({"instruction": "q", "input": "", "chosen": "yes", "rejected": "no"}),
        json!({"prompt": [u], "chosen": "yes", "rejected": "no"}),
        json!({"prompt": "q", "messages": [u, a], "chosen": [u, a], "rejected": [u, b]}),
    ] {
        assert_eq!(one(&record).unwrap(), both, "{record}");
    }
    let system = json!({"chosen": [u, a], "rejected": [u, b], "system": "s"});
    assert!(one(&system).unwrap()[0].starts_with("<system\ns>\n<user\nq>"));
    for (record, told) in [
        (
            json!({"chosen": [u, a], "rejected": [v, b]}),
            "ask different questions: they differ at message 1, whose role is user",
        ),
        (
            json!({"chosen": [u, a, u, a], "rejected": [u, a, v, b]}),
            "ask different questions: they differ at message 3",
        ),
        (
            json!({"chosen": [a], "rejected": [b]}),
            "begin with an assistant turn",
        ),
        (
            json!({"prompt": "q", "chosen": [a], "rejected": [b]}),
            "prompt is a text, and chosen and rejected are lists of messages",
        ),
        (
            json!({"chosen": [u, a], "rejected": [u]}),
            "rejected ends before its answer",
        ),
        (
            json!({"prompt": [u], "chosen": [u, a], "rejected": [u, b]}),
            "chosen begins with all messages of the field prompt (remove the field prompt",
        ),
        (
            json!({"prompt": "something else", "chosen": [u, a], "rejected": [u, b]}),
            "prompt is none of the messages",
        ),
        (
            json!({"chosen": "yes", "rejected": "no"}),
            "do not begin with the same question",
        ),
        (
            json!({"chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "\n\nHuman: c\n\nAssistant: d"}),
            "do not begin with the same question",
        ),
        (
            json!({"prompt": "q", "chosen": "a", "rejected": "b", "system": "s"}),
            "system next to texts is not supported",
        ),
        (
            json!({"chosen": [u, {"role": "assistant", "content": "yes", "weight": 0}], "rejected": [u, b]}),
            "pairs have no place for",
        ),
    ] {
        said(&record, told);
    }
}

#[test]
fn messages_say_whether_they_count() {
    let with = |name: &str, value: Value| {
        let mut first = turn("assistant", "one");
        first[name] = value;
        let rest = [turn("user", "q"), turn("assistant", "two")];
        json!({"messages": [turn("user", "p"), first, rest[0], rest[1]]})
    };
    let left = "<user\np>\n<assistant\none>\n<user\nq>\n<assistant\n[two>]\n";
    let all = "<user\np>\n<assistant\n[one>]\n<user\nq>\n<assistant\n[two>]\n";
    for name in ["weight", "train", "training", "loss"] {
        for value in [json!(0), json!(0.0), json!(false)] {
            assert_eq!(one(&with(name, value)).unwrap(), [left], "{name}");
        }
        for value in [json!(1), json!(true), json!(null)] {
            assert_eq!(one(&with(name, value)).unwrap(), [all], "{name}");
        }
        for value in [json!(0.5), json!(2), json!("yes")] {
            said(&with(name, value), &format!("{name} of messages[1] is"));
        }
        let mut asked = json!({"messages": [turn("user", "q"), turn("assistant", "a")]});
        asked["messages"][0][name] = true.into();
        said(&asked, "its role is user");
        asked["messages"][0][name] = false.into();
        one(&asked).unwrap();
    }
    for name in [
        "train_detail",
        "training_detail",
        "loss_scale",
        "loss_weight",
    ] {
        said(
            &with(name, json!([1])),
            &format!("{name} of messages[1] is not read"),
        );
    }
}

#[test]
fn what_is_no_text_is_refused_by_name() {
    for name in ["image", "images", "video", "videos", "audio", "audios"] {
        for mut record in [
            json!({"messages": [turn("user", "q"), turn("assistant", "a")]}),
            json!({"prompt": "q", "completion": "a"}),
            json!({"instruction": "q", "output": "a"}),
            json!({"prompt": "q", "chosen": "a", "rejected": "b"}),
        ] {
            record[name] = json!(["a.png"]);
            said(&record, &format!("{name} next to the text"));
            for nothing in [json!([]), json!(null), json!("")] {
                record[name] = nothing;
                one(&record).unwrap();
            }
        }
        let mut record = json!({"messages": [turn("user", "q"), turn("assistant", "a")]});
        record["messages"][0][name] = json!("a.png");
        said(&record, &format!("messages[0] has {name}"));
    }
}

#[test]
fn what_stands_beside_texts_is_refused_by_name() {
    for (name, value) in [
        ("system", json!("s")),
        ("tools", json!([{"name": "f"}])),
        ("documents", json!(["d"])),
    ] {
        let mut record = json!({"prompt": "q", "completion": "a"});
        record[name] = value.clone();
        said(
            &record,
            &format!("{name} next to prompt and completion is not supported"),
        );
        let mut record =
            json!({"prompt": [turn("user", "q")], "completion": [turn("assistant", "a")]});
        record[name] = value;
        one(&record).unwrap();
    }
    let record = json!({"instruction": "q", "output": "a", "tools": [{"name": "f"}]});
    said(&record, "tools next to instructions");
    let both = json!({"messages": [turn("system", "s"), turn("user", "q"), turn("assistant", "a")], "system": "t"});
    said(&both, "system and the first message of messages both");
}

#[test]
fn conversations_may_be_texts_of_json() {
    let turns = json!([turn("user", "q"), turn("assistant", "a")]).to_string();
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let want = vec!["<user\nq>\n<assistant\n[a>]\n".to_owned()];
    let table = format!("id,messages\n1,{}\n", quoted(&turns));
    assert_eq!(learnt("d.csv", &table).unwrap().0, want);
    let record = json!({"messages": turns});
    assert_eq!(one(&record).unwrap(), want);
    let shared =
        json!([{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]).to_string();
    assert_eq!(one(&json!({"conversations": shared})).unwrap(), want);
    let [asked, said_] =
        [[turn("user", "q")], [turn("assistant", "a")]].map(|it| json!(it).to_string());
    let table = format!("prompt,completion\n{},{}\n", quoted(&asked), quoted(&said_));
    assert_eq!(
        learnt("d.csv", &table).unwrap().0,
        ["<user\nq>\n<assistant\n[a>\n]"]
    );
    let table = format!(
        "chosen,rejected\n{},{}\n",
        quoted(&turns),
        quoted(&turns.replace("\"a\"", "\"b\""))
    );
    let found = learnt("d.csv", &table).unwrap().0;
    assert_eq!(
        found,
        [
            "<user\nq>\n<assistant\n[a>\n]",
            "<user\nq>\n<assistant\n[b>\n]"
        ]
    );
    let ids = "input_ids,labels\n\"[80, 81]\",\"[-100, 81]\"\n";
    assert_eq!(learnt("d.csv", ids).unwrap().0, ["P[Q]"]);
    // Python's text of a list is none of JSON; and a text may begin like a list.
    said(&json!({"messages": "[{'role': 'user'}]"}), "json.dumps(..)");
    let plain = json!({"prompt": "[1, 2]", "completion": "[{}]"});
    assert_eq!(one(&plain).unwrap(), ["[1, 2][[{}]]"]);
}

#[test]
fn other_fields_are_counted_and_told_once() {
    let record = |score: Value| json!({"messages": [{"role": "user", "content": "q", "stamp": 3}, turn("assistant", "a")], "score": score, "tools": null});
    let lines: Vec<_> = [json!(1), json!(null), json!(2)]
        .map(|it| record(it).to_string())
        .into();
    let (_, unread) = learnt("d.jsonl", &lines.join("\n")).unwrap();
    assert_eq!(
        unread.unwrap(),
        "field `messages[].stamp` in 3 examples is not read\nfield `score` in 2 examples is not read"
    );
    let (_, unread) = learnt("d.jsonl", "{\"text\": \"some text\", \"label\": 1}").unwrap();
    assert_eq!(unread.unwrap(), "field `label` in 1 example is not read");
    let read = json!({"instruction": "q", "input": "i", "output": "a", "history": []});
    assert_eq!(learnt("d.jsonl", &read.to_string()).unwrap().1, None);
}

#[test]
fn names_of_known_data_sets_are_taken() {
    let asked = |context: &str| {
        let record = json!({"instruction": "Who?", "context": context, "response": "Ada.", "category": "qa"});
        one(&record).unwrap()
    };
    let with_input = json!({"instruction": "Who?", "input": "Ada wrote it.", "output": "Ada."});
    assert_eq!(asked("Ada wrote it."), one(&with_input).unwrap());
    let without = json!({"instruction": "Who?", "output": "Ada."});
    assert_eq!(asked(""), one(&without).unwrap());
    let prompt = json!({"prompt": "Who? ", "completion": "Ada."});
    for record in [
        json!({"prompt": "Who? ", "response": "Ada."}),
        json!({"question": "Who? ", "response": "Ada."}),
        json!({"system_prompt": "", "question": "Who? ", "response": "Ada."}),
    ] {
        assert_eq!(one(&record).unwrap(), one(&prompt).unwrap(), "{record}");
    }
    said(
        &json!({"system_prompt": "Be brief.", "question": "Who? ", "response": "Ada."}),
        "system next to",
    );
}
