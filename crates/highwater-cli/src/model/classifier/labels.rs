//! `id2label` and `label2id` of a `config.json`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The classes by their numbers; none where the file does not say.
pub(crate) fn read(json: &Value) -> Result<BTreeMap<usize, String>, String> {
    let by_number = match json.get("id2label") {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(Value::Object(map)) => of_numbers(map)?,
        Some(Value::Array(names)) => of_list("id2label", names)?,
        Some(other) => {
            return Err(format!(
                "`id2label` is {other}, not a table of names by numbers"
            ));
        }
    };
    let by_name = match json.get("label2id") {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(Value::Object(map)) => of_names(map)?,
        Some(other) => {
            return Err(format!(
                "`label2id` is {other}, not a table of numbers by names"
            ));
        }
    };
    if by_number.is_empty() {
        return without_gaps("label2id", by_name);
    }
    for (number, name) in &by_name {
        if by_number.get(number) != Some(name) {
            let other = by_number.get(number).map_or("missing", String::as_str);
            return Err(format!(
                "`label2id` says that `{name}` is {number}, and `id2label` that {number} is `{other}`"
            ));
        }
    }
    Ok(by_number)
}

/// Names in the order of their numbers.
pub(crate) fn of_list(field: &str, names: &[Value]) -> Result<BTreeMap<usize, String>, String> {
    let name = |(number, name): (usize, &Value)| match name.as_str() {
        Some(name) => Ok((number, name.to_owned())),
        None => Err(format!("`{field}` has {name} for {number}, not a name")),
    };
    names.iter().enumerate().map(name).collect()
}

fn of_numbers(map: &Map<String, Value>) -> Result<BTreeMap<usize, String>, String> {
    let mut classes = BTreeMap::new();
    for (key, name) in map {
        let number = key.parse::<usize>();
        let number = number.map_err(|_| format!("`id2label` has the key `{key}`, not a number"))?;
        let name = name.as_str();
        let name = name.ok_or_else(|| {
            let value = &map[key];
            format!("`id2label` has {value} for {number}, not a name")
        })?;
        if classes.insert(number, name.to_owned()).is_some() {
            return Err(format!("`id2label` has {number} twice"));
        }
    }
    without_gaps("id2label", classes)
}

fn of_names(map: &Map<String, Value>) -> Result<BTreeMap<usize, String>, String> {
    let mut classes = BTreeMap::new();
    for (name, value) in map {
        let text = value.as_str().and_then(|text| text.parse().ok());
        let number = value.as_u64().or(text);
        let number =
            number.ok_or_else(|| format!("`label2id` has {value} for `{name}`, not a number"))?;
        if let Some(other) = classes.insert(number as usize, name.clone()) {
            return Err(format!(
                "`label2id` has {number} for `{other}` and for `{name}`"
            ));
        }
    }
    Ok(classes)
}

fn without_gaps(
    field: &str,
    classes: BTreeMap<usize, String>,
) -> Result<BTreeMap<usize, String>, String> {
    match (0..)
        .zip(classes.keys())
        .find(|(due, number)| due != *number)
    {
        Some((due, _)) => Err(format!(
            "`{field}` has {} classes and none of the number {due}",
            classes.len()
        )),
        None => Ok(classes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_and_numbers_are_read_in_every_form() {
        let two = BTreeMap::from([(0, "b".to_owned()), (1, "a".to_owned())]);
        for config in [
            json!({"id2label": {"0": "b", "1": "a"}}),
            json!({"id2label": {"1": "a", "0": "b"}, "label2id": {"a": 1, "b": 0}}),
            json!({"id2label": ["b", "a"]}),
            json!({"label2id": {"a": 1, "b": 0}}),
            json!({"id2label": null, "label2id": {"a": "1", "b": "0"}}),
        ] {
            assert_eq!(read(&config).unwrap(), two, "{config}");
        }
        for config in [
            json!({}),
            json!({"id2label": {}}),
            json!({"id2label": null}),
        ] {
            assert!(read(&config).unwrap().is_empty(), "{config}");
        }
        // Two of ImageNet's classes are called `crane`.
        let same = json!({"id2label": {"0": "crane", "1": "crane"}, "label2id": {"crane": 1}});
        assert_eq!(read(&same).unwrap().len(), 2);
    }

    #[test]
    fn tables_that_cannot_be_meant_are_refused_by_field_and_key() {
        for (config, told) in [
            (
                json!({"id2label": {"0": "a", "2": "b"}}),
                "none of the number 1",
            ),
            (
                json!({"id2label": {"1": "a", "2": "b"}}),
                "none of the number 0",
            ),
            (json!({"id2label": {"0": "a", "one": "b"}}), "`one`"),
            (json!({"id2label": {"0": "a", "-1": "b"}}), "`-1`"),
            (json!({"id2label": {"0": "a", "00": "b"}}), "0 twice"),
            (json!({"id2label": {"0": 7}}), "has 7 for 0"),
            (json!({"id2label": {"0": null}}), "has null for 0"),
            (json!({"id2label": ["a", 1]}), "has 1 for 1"),
            (json!({"id2label": "a,b"}), "not a table"),
            (json!({"label2id": [1]}), "not a table"),
            (json!({"label2id": {"a": 0, "b": 0}}), "`a` and for `b`"),
            (
                json!({"label2id": {"a": 0, "b": 2}}),
                "none of the number 1",
            ),
            (json!({"label2id": {"a": "x"}}), "for `a`"),
            (json!({"label2id": {"a": 1.5}}), "1.5"),
            (
                json!({"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 1}}),
                "that 1 is `b`",
            ),
        ] {
            let refused = read(&config).unwrap_err();
            assert!(refused.contains(told), "{config}: {refused}");
        }
    }
}
