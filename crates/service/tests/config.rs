//! Sections and their layers: defaults, file, environment.

use std::path::{Path, PathBuf};

use hob_service::config::{ConfigError, File, Layers, Mistakes, Origin, SectionType};
use hob_service::{Period, Section, section};

section! {
    /// A section for tests.
    pub struct Sample("sample") {
        /// A number.
        pub limit: u32 = 7 => 1..,
        /// A duration.
        /// With a second line.
        pub check_every: Period = Period::from_secs(30),
        /// A text.
        pub name: Option<String> = None,
        /// A list.
        pub names: Vec<String> = vec!["robin".into()],
    }
    check check_names;
}

fn check_names(sample: &Sample, mistakes: &mut Mistakes) {
    mistakes.check_each(
        "names",
        &sample.names,
        |name| if name.is_empty() { Err("is empty") } else { Ok(()) },
    );
}

fn file(folder: &Path, text: &str) -> File {
    let path = folder.join("hob.toml");
    std::fs::write(&path, text).unwrap();
    File::read(&path).unwrap()
}

fn variables(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn environment_overrides_the_file_and_the_file_overrides_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = file(folder.path(), "[sample]\nlimit = 8\ncheck_every = '1m'\n");
    assert!(file.check(&[SectionType::of::<Sample>()], &[]).is_empty());
    let layers = Layers::new(
        Some(&file),
        variables(&[("HOB_SAMPLE_LIMIT", "9"), ("HOB_SAMPLE_NAME", "17"), ("SAMPLE_LIMIT", "1")]),
    );
    let sample: Sample = layers.section().unwrap();
    assert_eq!((sample.limit, sample.check_every.to_string().as_str()), (9, "1m"));
    assert_eq!(sample.name.as_deref(), Some("17"), "text stays text, although it is also a number");
    assert_eq!(sample.names, ["robin"]);

    let origins: Vec<_> = layers.settings(&sample).into_iter().map(|setting| setting.origin).collect();
    let path = folder.path().join("hob.toml");
    let variable = |name: &str| Origin::Variable(name.to_owned());
    assert_eq!(
        origins,
        [variable("HOB_SAMPLE_LIMIT"), Origin::File(path), variable("HOB_SAMPLE_NAME"), Origin::Default]
    );
}

#[test]
fn environment_variable_can_hold_a_list() {
    let layers = Layers::new(None, variables(&[("HOB_SAMPLE_NAMES", r#"["wren", "owl"]"#)]));
    assert_eq!(layers.section::<Sample>().unwrap().names, ["wren", "owl"]);
}

#[test]
fn error_in_the_file_has_its_position() {
    let folder = tempfile::tempdir().unwrap();
    for (text, line, column, words) in [
        ("[sample]\nlimit = \"many\"\n", 2, 9, "a whole number"),
        ("[sample]\nunknown = 1\n", 2, 1, "unknown field `unknown`"),
        ("\n[sampel]\n", 2, 2, "unknown section `sampel`"),
        ("[sample]\ncheck_every = \"30\"\n", 2, 15, "not a duration"),
        ("[sample\n", 1, 8, ""),
    ] {
        match file(folder.path(), text).check(&[SectionType::of::<Sample>()], &[]).as_slice() {
            [ConfigError::InFile { line: l, column: c, message, .. }] => {
                assert_eq!((*l, *c), (line, column), "{text:?}: {message}");
                assert!(message.contains(words), "{message}");
            }
            other => panic!("{text:?} gave {other:?}"),
        }
    }
}

#[test]
fn all_mistakes_of_a_file_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[sample]\nlimit = \"many\"\nnames = [\"owl\", 7, \"\"]\nunknown = [1, 2]\n[other]\n";
    let mut bad = file(folder.path(), text);
    let kinds = [SectionType::of::<Sample>()];
    let errors: Vec<String> = bad.check(&kinds, &[]).iter().map(ToString::to_string).collect();
    let path = folder.path().join("hob.toml");
    for (place, words) in [
        ("2:9", "[sample] limit: "),
        ("3:17", "[sample] names[1]: "),
        ("4:1", "[sample] unknown: "),
        ("5:2", "unknown section"),
    ] {
        let start = format!("{}:{place}: {words}", path.display());
        assert_eq!(
            errors.iter().filter(|error| error.starts_with(&start)).count(),
            1,
            "{start}: {errors:#?}"
        );
    }
    assert_eq!(errors.len(), 4, "{errors:#?}");
    // What is left can be read.
    assert_eq!(Layers::new(Some(&bad), []).section::<Sample>().unwrap().limit, 7);
    let wrong = file(folder.path(), "[sample]\nlimit = 0\nnames = [\"owl\", \"\"]\n");
    let layers = Layers::new(Some(&wrong), []);
    let errors: Vec<String> =
        kinds[0].mistakes(&layers, Some(&wrong)).iter().map(ToString::to_string).collect();
    let at = |place: &str, message: &str| format!("{}:{place}: [sample] {message}", path.display());
    assert_eq!(errors, [at("2:9", "limit: must be at least 1, not 0"), at("3:17", "names[1]: is empty")]);
}

#[test]
fn error_in_a_variable_names_the_variable() {
    let layers = Layers::new(None, variables(&[("HOB_SAMPLE_LIMIT", "many")]));
    let refused = layers.section::<Sample>().unwrap_err().to_string();
    assert!(refused.starts_with("HOB_SAMPLE_LIMIT: ") && refused.contains("a whole number"), "{refused}");
}

#[test]
fn missing_file_is_named() {
    let refused = File::read(&PathBuf::from("no/such/hob.toml")).unwrap_err().to_string();
    assert!(refused.starts_with("cannot read no/such/hob.toml: "), "{refused}");
}

#[test]
fn section_has_its_descriptions() {
    assert_eq!(Sample::ABOUT, " A section for tests.\n");
    assert_eq!(Sample::FIELDS[1].about, " A duration.\n With a second line.\n");
    assert_eq!(Sample::FIELDS[1].variable(Sample::NAME), "HOB_SAMPLE_CHECK_EVERY");
}
