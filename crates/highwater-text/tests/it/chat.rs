//! Chat templates and what is learnt of conversations, beside transformers: `fixtures/make_chat.py` made the cases.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use highwater_memory::Files;
use highwater_memory::files::MemoryFiles;
use highwater_text::Tokenizer;
use highwater_text::{
    ChatTemplate, Conversation, Encoder, Example, FieldMap, Learn, Marked, Place, Reader,
    SpecialTokens, TextError, records::Record, turns,
};
use serde_json::{Value, json};

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

fn ranges(marked: &Marked) -> Vec<Range<usize>> {
    let turns = marked.turns.iter();
    turns.map(|turn| turn.range.clone()).collect()
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
            Ok(marked) => {
                same(&marked.text, text)?;
                ranges(&marked)
            }
            Err(TextError::Template { problem, .. }) if problem.contains("cannot find") => {
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
        let marked = turns(&template, &conversation).unwrap();
        let turns = ranges(&marked).into_iter();
        turns
            .map(|range| marked.text[range].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(learned(fields), ["d<|im_end|>"]);
}

/// What a template writes of one question, or why it does not.
fn written(source: &str) -> Result<String, String> {
    let special = SpecialTokens::default();
    let conversation = Conversation::of([("user", "hello")]);
    let parsed = ChatTemplate::parse("a file".to_owned(), source, &special);
    let rendered = parsed.and_then(|template| template.render(&conversation, false));
    rendered.map_err(|error| error.to_string())
}

#[test]
fn hostile_templates_are_stopped() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!("{{{{ {}1{} }}}}", open.repeat(depth), close.repeat(depth))
    };
    let blocks = format!(
        "{}x{}",
        "{% if 1 %}".repeat(5000),
        "{% endif %}".repeat(5000)
    );
    for (source, expected) in [
        (
            "{% for i in range(100000) %}{% for j in range(100000) %}a{% endfor %}{% endfor %}",
            "ran out of fuel",
        ),
        ("{{ 'a' * 1000000000 }}", "fuel"),
        ("{{ [0] * 1000000000 }}", "fuel"),
        ("{{ '%0999999999d' % 1 }}", "places"),
        ("{{ '{:999999999}'.format(1) }}", "places"),
        ("{{ 'a'.center(1000000000) }}", "fuel"),
        ("{{ 'a'|indent(1000000000) }}", "fuel"),
        ("{{ 2 ** 1000000 }}", "128 bits"),
        (
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "recursion",
        ),
        (
            "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
            "recursion",
        ),
        (
            "{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns }}",
            "recursion",
        ),
        (
            "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a == [namespace(a=ns.a)] }}{{ ns.a }}",
            "recursion",
        ),
        (
            "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}",
            "within each other",
        ),
        (&nested("(", ")", 20_000), "within each other"),
        (&nested("[", "]", 20_000), "within each other"),
        (&nested("-", "", 20_000), "within each other"),
        (&nested("not ", "", 20_000), "within each other"),
        (&nested("1 + ", "", 20_000), "operators"),
        (&nested("", "|abs", 20_000), "operators"),
        (&nested("", ".a", 20_000), "operators"),
        (&blocks, "within each other"),
        ("{% include 'file' %}", "include"),
        ("{{ raise_exception('no') }}", "no"),
        ("{{ messages[0].content.nothing() }}", "nothing"),
        ("{% for m in messages %}", "unexpected end"),
        ("{{ strftime_now('%Q') }}", "%Q"),
    ] {
        let error = written(source).unwrap_err();
        assert!(error.starts_with("a file: the chat template: "), "{error}");
        assert!(error.contains(expected), "{source:.200}: {error}");
    }
}

#[test]
fn threads_with_small_stacks_render() {
    let source = format!(
        "{}{{{{ 'deep' }}}}{}",
        "{% if 1 %}".repeat(90),
        "{% endif %}".repeat(90)
    );
    let thread = std::thread::Builder::new().stack_size(32 << 10);
    let text = thread
        .spawn(move || written(&source))
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(text.unwrap(), "deep");
}

#[test]
fn turns_that_cannot_be_told_apart_are_refused() {
    // What is said is not written where the template goes through the messages.
    let source = "{% for m in messages %}{{ m.role }} {% endfor %}{% set said = messages[1].content %}{{ said }}";
    let template = ChatTemplate::parse("t".to_owned(), source, &SpecialTokens::default()).unwrap();
    let conversation = Conversation::of([("user", "asked"), ("assistant", "answered")]);
    let error = turns(&template, &conversation).unwrap_err();
    assert!(error.to_string().contains("(message 2)"), "{error}");
    assert!(error.hint().unwrap().contains("--loss-on all"));
    // No character of a text is taken for a mark.
    let private = Conversation::of([("user", "a\u{10FFFC}"), ("assistant", "b\u{10FFFD}")]);
    let chatml = ChatTemplate::chatml(&SpecialTokens::default()).unwrap();
    assert_eq!(turns(&chatml, &private).unwrap().turns.len(), 1);
}

/// The tokenizer of the cases, whose special tokens are `<turn>`, `<|head|>` and so on.
fn tokenizer() -> Tokenizer {
    let files = MemoryFiles::new();
    write(&files, "/tokenizer.json", &cases()["tokenizer"].to_string());
    Tokenizer::load(&files, Path::new("/tokenizer.json")).unwrap()
}

/// What loss is computed on in a conversation, and how many turns nothing ends.
fn learned(source: &str, fields: &Value, end: Option<&str>) -> (Vec<String>, usize) {
    let tokenizer = tokenizer();
    let template = ChatTemplate::parse("t".to_owned(), source, &SpecialTokens::default()).unwrap();
    let end = end.map(|end| tokenizer.token_id(end).unwrap());
    let encoder = Encoder::new(&tokenizer, Some(template), end, Learn::Answers).unwrap();
    let document = encoder
        .encode(&Example::Chat(conversation(fields)))
        .unwrap()
        .remove(0);
    let mut stretches: Vec<Vec<u32>> = Vec::new();
    let mut before = false;
    for (token, &learned) in document.tokens.iter().zip(&document.learned) {
        match (learned, before) {
            (true, true) => stretches.last_mut().unwrap().push(*token),
            (true, false) => stretches.push(vec![*token]),
            (false, _) => {}
        }
        before = learned;
    }
    let texts = stretches
        .iter()
        .map(|tokens| tokenizer.decode(tokens).unwrap());
    (texts.collect(), document.endless)
}

fn talk() -> Value {
    json!({"messages": [
        {"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"},
        {"role": "user", "content": "q2"}, {"role": "assistant", "content": "a2"},
    ]})
}

#[test]
fn the_next_roles_mark_ends_a_turn_that_nothing_else_ends() {
    let source = "{% for m in messages %}{% if m.role == 'user' %}<turn>\n{{ m.content }}{% else %}<|head|>\n\
                  {{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|head|>\n{% endif %}";
    let (texts, endless) = learned(source, &talk(), Some("</s>"));
    assert_eq!(texts, ["a1<turn>", "a2</s>"]);
    assert_eq!(endless, 0);
    // A call of a tool is no end, nor is the word for it.
    let source = source.replace(
        "{{ m.content }}{% endif %}",
        "{{ m.content }}{% for c in m.tool_calls %}\n\
                                [{{ c.function.name }}]{% endfor %}{% endif %}",
    );
    let mut calls = talk();
    calls["messages"][1]["tool_calls"] =
        json!([{"type": "function", "function": {"name": "f", "arguments": {}}}]);
    let (texts, endless) = learned(&source, &calls, Some("</s>"));
    // `trim_blocks` takes the line break behind the tag.
    assert_eq!(texts, ["a1[f]<turn>", "a2</s>"]);
    assert_eq!(endless, 0);
}

#[test]
fn turns_that_nothing_ends_are_counted() {
    let source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let (texts, endless) = learned(source, &talk(), None);
    assert_eq!(
        texts.concat().replace('\n', ""),
        "assistant: a1assistant: a2"
    );
    assert_eq!(endless, 2);
    // The end of the text ends the last one.
    assert_eq!(learned(source, &talk(), Some("</s>")).1, 1);
    let chatml = ChatTemplate::CHATML;
    assert_eq!(
        learned(chatml, &talk(), None),
        (
            vec!["a1<|im_end|>".to_owned(), "a2<|im_end|>".to_owned()],
            0
        )
    );
}

#[test]
fn turns_are_found_where_the_whole_ends_otherwise_than_its_beginning() {
    // What ends the text stands behind all messages, and thoughts are written in the last turn alone.
    let source = "{% for m in messages %}{% if m.role == 'user' %}<turn>\n{{ m.content }}<|eot|>\n{% else %}<|head|>\n\
                  {% if loop.last %}[thoughts]\n{% endif %}{{ m.content }}<|eot|>\n{% endif %}{% endfor %}\
                  {% if add_generation_prompt %}<|head|>\n{% else %}{{ eos_token }}{% endif %}";
    let mut fields = talk();
    fields["chat_template_kwargs"] = json!({"eos_token": "</s>"});
    let Value::Object(record) = fields else {
        panic!("no object")
    };
    let place = Place::of("case");
    let record = Record {
        place,
        fields: record,
    };
    let reader = Reader::detect(&record, FieldMap::default(), true).unwrap();
    let Example::Chat(conversation) = reader.read(record).unwrap() else {
        panic!("no conversation")
    };
    let template = ChatTemplate::parse("t".to_owned(), source, &SpecialTokens::default()).unwrap();
    let marked = turns(&template, &conversation).unwrap();
    let texts: Vec<_> = ranges(&marked)
        .into_iter()
        .map(|range| &marked.text[range])
        .collect();
    assert_eq!(texts, ["a1<|eot|>", "[thoughts]\na2<|eot|>", "</s>"]);
}

#[test]
fn what_tools_say_within_an_assistants_turn_is_not_learnt() {
    let source = "{% for m in messages %}{% if m.role != 'tool' %}<|head|>{{ m.role }}\n{{ m.content }}\
                  {% if m.tool_calls %}{% for k in range(loop.index, messages | length) %}{% set t = messages[k] %}\
                  {% if t.role == 'tool' %}[{{ t.content }}]{% endif %}{% endfor %}{% endif %}<|eot|>{% endif %}\
                  {% endfor %}{% if add_generation_prompt %}<|head|>assistant\n{% endif %}";
    let call = json!([{"type": "function", "function": {"name": "f", "arguments": {}}}]);
    let fields = json!({"messages": [
        {"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "tool_calls": call},
        {"role": "tool", "content": "said"}, {"role": "assistant", "content": "b"},
    ]});
    let (texts, endless) = learned(source, &fields, None);
    assert_eq!(texts, ["a", "<|eot|>", "b<|eot|>"]);
    assert_eq!(endless, 0);
}

#[test]
fn contents_are_given_in_the_form_that_a_template_reads() {
    let parts = json!({"messages": [
        {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "text", "text": "1"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
    ]});
    let text = json!({"messages": [{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a"}]});
    let reads_texts = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %};{% endfor %}";
    let reads_parts =
        "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %};{% endfor %}";
    let reads_both = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}\
                      {% for p in m.content %}({{ p.text }}){% endfor %}{% endif %};{% endfor %}";
    for (source, from_parts, from_text) in [
        (reads_texts, "q1;a;", "q1;a;"),
        (reads_parts, "q1;a;", "q1;a;"),
        (reads_both, "(q)(1);(a);", "q1;a;"),
    ] {
        let template =
            ChatTemplate::parse("t".to_owned(), source, &SpecialTokens::default()).unwrap();
        for (fields, expected) in [(&parts, from_parts), (&text, from_text)] {
            assert_eq!(
                template.render(&conversation(fields), false).unwrap(),
                expected
            );
        }
    }
}

#[test]
fn nulls_reach_a_template_as_transformers_gives_them() {
    let fields = json!({"messages": [
        {"role": "user", "content": "q", "x": null, "y": [1, null]},
        {"role": "assistant", "content": null, "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": {"a": null, "b": 1e20}}}
        ]},
    ]});
    let source = "{{ messages[0].x is defined }} {{ messages[0].y }} {{ messages[1].content is defined }} \
                  {{ messages[1].tool_calls[0].function.arguments | tojson }}";
    let template = ChatTemplate::parse("t".to_owned(), source, &SpecialTokens::default()).unwrap();
    let text = template.render(&conversation(&fields), false).unwrap();
    assert_eq!(text, "False [1, None] False {\"a\": null, \"b\": 1e+20}");
}

#[test]
fn expressions_mean_what_they_mean_in_python() {
    for (expression, expected) in [
        (
            "1e20, 1e16, 1e15, 1e-7, 0.0001, -0.0, 7 / 2, 7 // 2, -7 // 2, -7 % 3",
            "(1e+20, 1e+16, 1000000000000000.0, 1e-07, 0.0001, -0.0, 3.5, 3, -4, 2)",
        ),
        ("'a-b-c'.rsplit('-', 1)", "['a-b', 'c']"),
        ("'a-b'.partition('-')", "('a', '-', 'b')"),
        (
            "'abc'.removeprefix('a') ~ '7'.zfill(3) ~ 'x'.center(4, '*')",
            "bc007*x**",
        ),
        ("'%05.1f|%-4s|%r' % (2.25, 'a', 'b')", "002.2|a   |'b'"),
        ("'{:>6,.1f}|{!r}'.format(1234.5, none)", "1,234.5|None"),
        (
            "'some long words' | truncate(9) ~ ('a b-c' | wordcount)",
            "some...3",
        ),
        (
            "[true, none, 'it\\'s', {'a': 1.0}]",
            "[True, None, \"it's\", {'a': 1.0}]",
        ),
        (
            "none is iterable, [] is iterable, nope is iterable",
            "(False, True, True)",
        ),
        (
            "messages[0].items is defined, messages[0].pop is defined",
            "(True, False)",
        ),
        ("('x' | safe) ~ '<'", "x<"),
        ("range(5)[::-1] | list", "[4, 3, 2, 1, 0]"),
    ] {
        assert_eq!(
            written(&format!("{{{{ {expression} }}}}")).as_deref(),
            Ok(expected),
            "{expression}"
        );
    }
    for (expression, refused) in [
        ("[x for x in none]", "expected"),
        ("none | list", "'NoneType' object is not iterable"),
        (
            "'a' < 1",
            "not supported between instances of 'str' and 'int'",
        ),
        ("none[1:]", "not subscriptable"),
        ("'a' + 1", "unsupported operand"),
        ("nope.nope", "'nope' is undefined"),
        ("'x' | random", "the filter random is not supported"),
        ("'a'.encode()", "encode of a str is not supported"),
        ("[1] | map('upper') | string", "not supported"),
    ] {
        let error = written(&format!("{{{{ {expression} }}}}")).unwrap_err();
        assert!(error.contains(refused), "{expression}: {error}");
    }
}

#[test]
fn strftime_now_writes_the_day_that_the_template_was_read_on() {
    let template = ChatTemplate::parse(
        "t".to_owned(),
        "{{ strftime_now('%d %b %Y') }}",
        &SpecialTokens::default(),
    );
    let now = "2031-02-03T04:05:06".parse().unwrap();
    let text = template
        .unwrap()
        .at(now)
        .render(&Conversation::of([("user", "q")]), false);
    assert_eq!(text.unwrap(), "03 Feb 2031");
}
