use super::*;

settings! {
    /// Two settings, to show what an entry is enough for.
    struct Oven;

    "Heat" {
        /// How hot it is
        temperature: f64, at("heat.temperature"), value("C"), alias("temp"), bounds(0.0..=300.0), default("180"),
            essential;

        /// Blow hot air
        fan: bool, at("heat.fan"), example("true");
    }
}

fn command() -> Command {
    let to_arg = |setting: &Setting<Oven>| setting.to_arg(true, !setting.is_essential);
    Oven::add_flags(Command::new("oven"), |_| true, to_arg)
}

fn of_line(line: &str) -> Oven {
    let command = command().no_binary_name(true);
    let matches = command.try_get_matches_from(line.split_whitespace());
    Oven::of_flags(&matches.unwrap(), |_| true)
}

#[test]
fn an_entry_is_enough_for_a_setting() {
    // Its flags.
    let hot = of_line("--temperature 250 --fan");
    assert_eq!((hot.temperature, hot.fan), (Some(250.0), Some(true)));
    assert_eq!(of_line("--temp 250"), of_line("--temperature 250"));
    // Its help, of which --help shows what is essential.
    let help = command().render_long_help().to_string();
    assert!(
        help.contains("Heat:") && help.contains("--temperature <C>"),
        "{help}"
    );
    assert!(help.contains("How hot it is [default: 180]"), "{help}");
    assert!(!help.contains("--fan"), "{help}");
    assert_eq!(Oven::table()[1].help(), "Blow hot air");
    // A file, under what flags say.
    let mut own = of_line("--temperature 200");
    own.fill(&hot, |_| false);
    assert_eq!((own.temperature, own.fan), (Some(200.0), Some(true)));
    // Its place, as `--config` and `--set` name it.
    let mut set = Oven::default();
    take(&mut set, "heat.temperature", &toml::Value::Float(250.0)).unwrap();
    take(&mut set, "heat.fan", &toml::Value::Boolean(true)).unwrap();
    assert_eq!(set, hot);
    let wrong = take(&mut set, "heat.temperatur", &toml::Value::Float(1.0)).unwrap_err();
    assert!(
        wrong.text.contains("did you mean `temperature`?"),
        "{}",
        wrong.text
    );
    let wrong = take(&mut set, "heat.fan", &toml::Value::Integer(1)).unwrap_err();
    assert!(wrong.text.ends_with("such as true"), "{}", wrong.text);
    // Its bounds.
    hot.check().unwrap();
    let wrong = of_line("--temperature 301").check().unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "--temperature is 301; expected a number from 0 to 300"
    );
}
