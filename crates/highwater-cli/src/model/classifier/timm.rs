//! The `config.json` of timm's folders, of the models that torchvision has under the same names.

use serde_json::Value;

use super::{Classifier, MEAN, STD, labels};

/// Models of timm that have torchvision's layers and names.
const SHARED: [&str; 4] = ["resnet18", "resnet34", "resnet50", "densenet121"];

/// Reads the file; none if it is not timm's.
pub(super) fn read(json: &Value) -> Result<Option<Classifier>, String> {
    let fields = [
        "pretrained_cfg",
        "label_names",
        "num_classes",
        "num_features",
    ];
    let is_timm = fields.iter().any(|field| json.get(field).is_some());
    let name = json.get("architecture").and_then(Value::as_str);
    let Some(name) = name.filter(|_| is_timm) else {
        return Ok(None);
    };
    if !SHARED.contains(&name) {
        return Err(format!(
            "`architecture` is {name}, a model of timm; of those, {} are read",
            SHARED.join(", ")
        ));
    }
    // Newer files have a table of what the weights were trained with.
    let field = |field: &str| {
        let inner = json.get("pretrained_cfg").and_then(|of| of.get(field));
        inner
            .or_else(|| json.get(field))
            .filter(|value| !value.is_null())
    };
    for (of, own) in [("mean", MEAN), ("std", STD)] {
        check_same(of, field(of), own)?;
    }
    let mut classifier = Classifier::new(name);
    if let Some(size) = field("input_size") {
        let side = size.get(1).and_then(Value::as_u64).filter(|&side| side > 0);
        let side = side.ok_or_else(|| format!("`input_size` is {size}, not of three numbers"))?;
        classifier.size = side as usize;
    }
    classifier.classes = match field("label_names") {
        None => labels::read(json)?,
        Some(Value::Array(names)) => labels::of_list("label_names", names)?,
        Some(other) => return Err(format!("`label_names` is {other}, not a list of names")),
    };
    Ok(Some(classifier))
}

/// That a field, if it is there, says what images are normalized by here.
pub(super) fn check_same(field: &str, found: Option<&Value>, own: [f32; 3]) -> Result<(), String> {
    match found.filter(|found| !found.is_null() && !is_same(found, own)) {
        None => Ok(()),
        Some(found) => Err(format!(
            "`{field}` is {found}: images are normalized by {own:?} here, ImageNet's"
        )),
    }
}

fn is_same(found: &Value, own: [f32; 3]) -> bool {
    let found = found.as_array().map(Vec::as_slice).unwrap_or_default();
    let near = |(found, own): (&Value, f32)| {
        let found = found.as_f64();
        found.is_some_and(|found| (found - f64::from(own)).abs() < 1e-4)
    };
    found.len() == 3 && found.iter().zip(own).all(near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn folders_of_timm_are_read_or_refused_by_name() {
        let mean = json!({"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "input_size": [3, 160, 160]});
        let config = json!({"architecture": "resnet18", "num_classes": 2, "label_names": ["b", "a"], "pretrained_cfg": mean});
        let found = read(&config).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.size), ("resnet18", 160));
        assert_eq!(found.classes[&0], "b");
        for (config, told) in [
            (
                json!({"architecture": "convnext_tiny", "num_classes": 2}),
                "convnext_tiny",
            ),
            (
                json!({"architecture": "resnet18", "pretrained_cfg": {"mean": [0.5, 0.5, 0.5]}}),
                "`mean`",
            ),
            (
                json!({"architecture": "resnet18", "num_classes": 2, "label_names": "x"}),
                "label_names",
            ),
        ] {
            let refused = read(&config).unwrap_err();
            assert!(refused.contains(told), "{config}: {refused}");
        }
        assert!(
            read(&json!({"architectures": ["GPT2LMHeadModel"]}))
                .unwrap()
                .is_none()
        );
    }
}
