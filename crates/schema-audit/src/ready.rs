//! Ready-made schemas of libraries that keep their data in Redis, from `schemas/ready`.

use hob_schema::{Prefix, Schema};

use crate::error::Error;
use crate::infer::Known;

/// A file, and how many families a sample must contain before `infer` recognizes it. `None`: its keys could be anything.
struct File {
    name: &'static str,
    text: &'static str,
    families: Option<usize>,
    /// Other prefixes that are common, so that `infer` recognizes them.
    prefixes: &'static [&'static str],
}

macro_rules! file {
    ($name:literal, $families:expr) => {
        file!($name, $families, &[])
    };
    ($name:literal, $families:expr, $prefixes:expr) => {
        File {
            name: $name,
            text: include_str!(concat!("../../../schemas/ready/", $name, ".toml")),
            families: $families,
            prefixes: $prefixes,
        }
    };
}

const FILES: &[File] = &[
    // Its documentation recommends the second prefix for a Cluster.
    file!("bullmq", Some(3), &["{bull}:"]),
    file!("celery", Some(1)),
    file!("centrifugo", Some(1)),
    file!("connect_redis", Some(1)),
    file!("django_redis", Some(1)),
    file!("laravel", Some(1)),
    file!("rails_cache", None),
    file!("rate_limit_redis", Some(1)),
    file!("redlock", None),
    file!("rq", Some(2)),
    file!("sidekiq", Some(2)),
    file!("socket_io", Some(1)),
    file!("socket_io_streams", Some(1)),
    file!("spring_session", Some(1)),
];

/// The name of a ready-made schema as users write it: `connect-redis`.
pub fn ready_name(schema: &Schema) -> String {
    schema.name.replace('_', "-")
}

/// Every ready-made schema, by name.
pub fn ready_schemas() -> Result<Vec<Schema>, Error> {
    FILES.iter().map(parse).collect()
}

/// The text of a ready-made schema, to copy and change.
pub fn ready_text(name: &str) -> Result<&'static str, Error> {
    find(name).map(|file| file.text)
}

/// A ready-made schema by `NAME`, or by `NAME=PREFIX` with another prefix of its keys.
pub fn ready_schema(choice: &str) -> Result<Schema, Error> {
    let (name, prefix) = match choice.split_once('=') {
        Some((name, prefix)) => (name, Some(prefix)),
        None => (choice, None),
    };
    let mut schema = parse(find(name)?)?;
    if let Some(prefix) = prefix {
        if !Prefix::accepts(prefix) {
            return Err(Error::BadPrefix(prefix.to_owned()));
        }
        schema.prefix = Prefix { env: None, value: prefix.to_owned() };
    }
    Ok(schema)
}

/// The ready-made schemas that `infer` recognizes.
pub fn recognizable() -> Result<Vec<Known>, Error> {
    let mut all = Vec::new();
    for file in FILES {
        let Some(families) = file.families else { continue };
        let schema = parse(file)?;
        for prefix in file.prefixes {
            let name = format!("{}={prefix}", ready_name(&schema));
            all.push(Known { schema: ready_schema(&name)?, name, families });
        }
        all.push(Known { name: ready_name(&schema), schema, families });
    }
    Ok(all)
}

fn parse(file: &File) -> Result<Schema, Error> {
    Schema::parse(&format!("schemas/ready/{}.toml", file.name), file.text).map_err(Error::Ready)
}

fn find(name: &str) -> Result<&'static File, Error> {
    let wanted = name.replace('-', "_");
    FILES.iter().find(|file| file.name == wanted).ok_or_else(|| Error::UnknownReady(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use hob_schema::{Catalog, Layout};

    use super::*;

    #[test]
    fn every_ready_made_schema_is_valid_and_says_what_it_is_based_on() {
        for schema in ready_schemas().unwrap() {
            let (purpose, note) = (schema.purpose.unwrap_or_default(), schema.note.unwrap_or_default());
            assert!(!purpose.is_empty(), "{}", schema.file);
            let based = note.starts_with("Checked against ") || note.starts_with("From its documentation");
            assert!(based, "{}: {note}", schema.file);
            assert!(schema.families.iter().all(|family| family.purpose.is_some()), "{}", schema.file);
        }
    }

    /// A server has the keys of several libraries.
    #[test]
    fn any_ready_made_schemas_can_be_used_together() {
        Catalog::with_libraries(Vec::new(), ready_schemas().unwrap(), Layout::Plain).unwrap();
    }

    #[test]
    fn prefix_can_be_replaced_and_unknown_names_are_refused() {
        assert_eq!(ready_schema("connect-redis").unwrap().prefix.value, "sess:");
        assert_eq!(ready_schema("connect-redis=app:sess:").unwrap().prefix.value, "app:sess:");
        assert_eq!(ready_schema("bullmq={bull}:").unwrap().prefix.value, "{bull}:");
        for bad in ["a b", "{bull", "bull}:", "{}:", "{a}{b}:", "{*}:"] {
            assert!(matches!(ready_schema(&format!("bullmq={bad}")), Err(Error::BadPrefix(_))), "{bad}");
        }
        assert!(ready_schema("nope").unwrap_err().to_string().contains("nope"));
    }
}
