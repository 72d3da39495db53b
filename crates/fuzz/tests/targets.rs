//! Every target on its seeds, on changed seeds and on any bytes. `cargo xtask fuzz` searches for longer, by coverage.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{TestCaseResult, TestRunner};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let listed = fs::read_dir(folder).unwrap();
    listed.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = folder().join("seeds").join(target);
    let listed = fs::read_dir(&folder).unwrap();
    listed.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
}

/// One change of a seed: so many bytes from a position on are replaced.
#[derive(Clone, Debug)]
struct Edit {
    at: Index,
    removed: usize,
    inserted: Vec<u8>,
}

fn edit() -> impl Strategy<Value = Edit> {
    let inserted = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..4),
        "[\\PC\n]{0,4}".prop_map(String::into_bytes),
        prop::sample::select(vec![
            "\"",
            "'",
            "\\",
            "{",
            "}",
            "[",
            "]",
            "${",
            "$",
            "\r\n",
            "\0",
            "0",
            "-1",
            "99999999999999999999"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    (any::<Index>(), 0..8_usize, inserted).prop_map(|(at, removed, inserted)| Edit { at, removed, inserted })
}

fn input(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changed =
        (prop::sample::select(seeds), prop::collection::vec(edit(), 1..5)).prop_map(|(seed, edits)| {
            edits.into_iter().fold(seed, |mut bytes, edit| {
                let start = edit.at.index(bytes.len() + 1);
                let end = (start + edit.removed).min(bytes.len());
                bytes.splice(start..end, edit.inserted);
                bytes
            })
        });
    prop_oneof![3 => changed, 1 => prop::collection::vec(any::<u8>(), 0..100)]
}

fn holds_for_changed_seeds(name: &str, target: fn(&[u8])) {
    let seeds = seeds(name);
    assert!(!seeds.is_empty(), "fuzz/seeds/{name} has no seeds");
    seeds.iter().for_each(|seed| target(seed));
    let run = |bytes: Vec<u8>| -> TestCaseResult {
        target(&bytes);
        Ok(())
    };
    TestRunner::default().run(&input(seeds), run).unwrap_or_else(|error| panic!("{name}: {error}"));
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                holds_for_changed_seeds(stringify!($name), hob_fuzz::$name);
            }
        )*

        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}

targets!(assertion chat_frame chat_protobuf cursor document expression histogram http_response load_plan lua_library pipeline_plan proxy_request request schema traceparent);

#[test]
fn every_target_has_a_test_a_program_and_seeds() {
    let tested: BTreeSet<String> = TESTED.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(names_in(&folder().join("src/bin")), tested);
    assert_eq!(names_in(&folder().join("seeds")), tested);
}
