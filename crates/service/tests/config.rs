//! Sections in their layers: defaults, the file, the environment.

use std::path::{Path, PathBuf};

use hob_service::config::{BadConfig, File, Layers, Origin, SectionKind};
use hob_service::{Period, Section, section};

section! {
    /// Looks after the garden.
    pub struct Garden("garden") {
        /// How many gnomes there are.
        pub gnomes: u32 = 7,
        /// How often they are counted.
        /// Not at night.
        pub count_every: Period = Period::from_secs(30),
        /// What the garden is called.
        pub name: Option<String> = None => "HOB_GARDEN",
        /// Who may enter.
        pub guests: Vec<String> = vec!["robin".into()],
    }
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
fn the_environment_wins_over_the_file_and_the_file_over_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), "[garden]\ngnomes = 8\ncount_every = '1m'\n");
    file.check(&[SectionKind::of::<Garden>()]).unwrap();
    let layers = Layers::new(
        Some(&file),
        variables(&[("HOB_GARDEN_GNOMES", "9"), ("HOB_GARDEN", "17"), ("GARDEN_GNOMES", "1")]),
    )
    .unwrap();
    let garden: Garden = layers.section().unwrap();
    assert_eq!((garden.gnomes, garden.count_every.to_string().as_str()), (9, "1m"));
    assert_eq!(garden.name.as_deref(), Some("17"), "text stays text, though it reads as a number");
    assert_eq!(garden.guests, ["robin"]);

    let origins: Vec<_> = layers.settings(&garden).into_iter().map(|setting| setting.origin).collect();
    let path = folder.path().join("hob.toml");
    let variable = |name: &str| Origin::Variable(name.to_owned());
    assert_eq!(
        origins,
        [variable("HOB_GARDEN_GNOMES"), Origin::File(path), variable("HOB_GARDEN"), Origin::Default]
    );
}

#[test]
fn lists_can_be_given_in_the_environment() {
    let layers = Layers::new(None, variables(&[("HOB_GARDEN_GUESTS", r#"["wren", "owl"]"#)])).unwrap();
    assert_eq!(layers.section::<Garden>().unwrap().guests, ["wren", "owl"]);
}

#[test]
fn a_mistake_in_the_file_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for (text, line, column, words) in [
        ("[garden]\ngnomes = \"many\"\n", 2, 10, "u32"),
        ("[garden]\nflowers = 1\n", 2, 1, "unknown field `flowers`"),
        ("\n[gardn]\n", 2, 2, "unknown field `gardn`"),
        ("[garden]\ncount_every = \"30\"\n", 2, 15, "no duration"),
        ("[garden\n", 1, 8, ""),
    ] {
        match file(folder.path(), text).check(&[SectionKind::of::<Garden>()]) {
            Err(BadConfig::InFile { line: l, column: c, message, .. }) => {
                assert_eq!((l, c), (line, column), "{text:?}: {message}");
                assert!(message.contains(words), "{message}");
            }
            other => panic!("{text:?} gave {other:?}"),
        }
    }
}

#[test]
fn a_mistake_in_a_variable_is_named_with_it() {
    let layers = Layers::new(None, variables(&[("HOB_GARDEN_GNOMES", "many")])).unwrap();
    let refused = layers.section::<Garden>().unwrap_err().to_string();
    assert!(refused.starts_with("HOB_GARDEN_GNOMES: ") && refused.contains("u32"), "{refused}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let refused = File::read(&PathBuf::from("no/such/hob.toml")).unwrap_err().to_string();
    assert!(refused.starts_with("cannot read no/such/hob.toml: "), "{refused}");
}

#[test]
fn a_section_explains_itself() {
    assert_eq!(Garden::ABOUT, " Looks after the garden.\n");
    assert_eq!(Garden::FIELDS[1].about, " How often they are counted.\n Not at night.\n");
    assert_eq!(Garden::FIELDS[1].variable(Garden::NAME), "HOB_GARDEN_COUNT_EVERY");
}
