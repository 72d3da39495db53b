//! Generated code: each language's own tools accept it, and it builds the same keys as Rust.

mod cases;
mod drivers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hob_schema::Schema;
use hob_schema::code::{Language, generate};
use hob_testkit::{node_modules, python};

use crate::{SERVICES, load_schema};
use cases::{Case, cases};

/// The folder of the generated code, with Hob's own schemas and the one that has every form.
fn generated(language: Language) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for schema in SERVICES.map(load_schema).iter().chain([&every_form()]) {
        let file = generate(schema, language).unwrap_or_else(|clash| panic!("{clash}"));
        write(&folder.path().join(file.path), &file.text);
    }
    folder
}

fn every_form() -> Schema {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/every_form.toml");
    Schema::load(&path).unwrap_or_else(|errors| panic!("{errors}"))
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Runs a tool and returns what it prints.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}; `cargo xtask test` installs what is missing")
    });
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Compares the keys that a driver prints with those of Rust.
fn compare(printed: &str, cases: &[Case]) {
    let keys: Vec<Option<String>> = serde_json::from_str(printed).unwrap();
    assert_eq!(keys.len(), cases.len());
    for (case, key) in cases.iter().zip(keys) {
        assert_eq!(key, case.key, "{case:?}");
    }
}

fn write_cases(folder: &Path) -> Vec<Case> {
    let cases = cases(&every_form());
    write(&folder.join("cases.json"), &serde_json::to_string(&cases).unwrap());
    cases
}

fn tsc(folder: &Path) -> Command {
    let mut command = Command::new("node");
    command.current_dir(folder).arg(node_modules().join("typescript/bin/tsc"));
    command.args(["--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes"]);
    command.args(["--noImplicitOverride", "--target", "es2020", "--lib", "es2020", "--module", "commonjs"]);
    // No other types than those of the language: the code has no dependencies.
    command.args(["--typeRoots", "."]);
    command
}

#[test]
fn typescript_compiles_and_builds_the_same_keys() {
    let folder = generated(Language::TypeScript);
    let folder = folder.path();
    write(&folder.join("usage.ts"), drivers::TYPESCRIPT_USAGE);
    let sources = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sources: Vec<PathBuf> = sources.collect();
    assert_eq!(sources.len(), SERVICES.len() + 2);
    run(tsc(folder).args(&sources));
    run(Command::new("node").current_dir(folder).arg("usage.js"));
    let cases = write_cases(folder);
    write(&folder.join("driver.js"), &drivers::javascript(&every_form()));
    compare(&run(Command::new("node").current_dir(folder).arg("driver.js")), &cases);
}

#[test]
fn python_passes_mypy_and_builds_the_same_keys() {
    let folder = generated(Language::Python);
    let folder = folder.path();
    write(&folder.join("usage.py"), drivers::PYTHON_USAGE);
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mypy");
    let mut mypy = Command::new(python());
    mypy.current_dir(folder).args(["-m", "mypy", "--strict", "--cache-dir"]).arg(cache).arg(".");
    run(&mut mypy);
    run(Command::new(python()).current_dir(folder).arg("usage.py"));
    let cases = write_cases(folder);
    write(&folder.join("driver.py"), &drivers::python(&every_form()));
    compare(&run(Command::new(python()).current_dir(folder).arg("driver.py")), &cases);
}

#[test]
fn go_passes_vet_and_builds_the_same_keys() {
    let folder = generated(Language::Go);
    let folder = folder.path();
    write(&folder.join("go.mod"), "module example.com/generated\n\ngo 1.18\n");
    write(&folder.join("driver/main.go"), &drivers::go(&every_form()));
    write(&folder.join("everyformkeys/usage_test.go"), drivers::GO_USAGE);
    let go = || {
        let mut go = Command::new("go");
        go.current_dir(folder).env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
        go.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod")]);
        go
    };
    assert_eq!(run(Command::new("gofmt").current_dir(folder).args(["-l", "."])), "");
    run(go().args(["vet", "./..."]));
    run(go().args(["test", "./..."]));
    let cases = write_cases(folder);
    compare(&run(go().args(["run", "./driver"])), &cases);
}

#[test]
fn two_parts_with_the_same_name_are_refused() {
    let text =
        "[schema]\nname = \"x\"\nversion = 1\n[ids]\nuserId = {}\n[shape.user_id]\nname = \"string\"\n";
    let schema = Schema::parse("x.toml", text).unwrap();
    for (language, name) in
        [(Language::TypeScript, "UserId"), (Language::Python, "UserId"), (Language::Go, "UserID")]
    {
        let clash = generate(&schema, language).unwrap_err().to_string();
        let parts = format!("the id `userId` and the shape `user_id` are both `{name}` in {language}");
        assert!(clash.contains(&parts), "{clash}");
    }
    let text = "[schema]\nname = \"x\"\nversion = 1\n[key.shards]\npattern = \"a\"\ntype = \"set\"\n";
    let schema = Schema::parse("x.toml", text).unwrap();
    for language in Language::ALL {
        assert!(generate(&schema, language).is_err(), "{language}");
    }
}
