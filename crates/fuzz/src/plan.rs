//! Files that users write: plans of load tests and pipelines, schemas.

use hob_load::plan::{Format, PlanSource};
use hob_schema::{Catalog, Keyspace, Layout, Schema, docs, examples, lint};

const MAX_HEADERS: usize = 128;

/// A plan of load is rejected, or every request that it sends is one HTTP request and nothing after it.
pub fn load_plan(data: &[u8]) {
    let Some(text) = crate::text(data) else { return };
    let format = if text.starts_with('{') { Format::Json } else { Format::Toml };
    let Ok(plan) = (PlanSource { format, ..PlanSource::toml(text) }).read() else { return };
    for step in &plan.steps {
        let mut sent = Vec::new();
        step.request.write(&mut sent, &plan.values, &[("cookie".to_owned(), "value".to_owned())]);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let head = match request.parse(&sent) {
            Ok(httparse::Status::Complete(head)) => head,
            Err(httparse::Error::TooManyHeaders) => continue,
            other => panic!("{other:?}: {}", sent.escape_ascii()),
        };
        let length = request
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case("content-length"))
            .map_or(0, |header| String::from_utf8_lossy(header.value).parse().expect("a length"));
        assert_eq!(sent.len(), head + length, "{}", sent.escape_ascii());
    }
}

/// A plan of a pipeline is parsed or rejected, with a line that exists.
pub fn pipeline_plan(data: &[u8]) {
    let Some(text) = crate::text(data) else { return };
    match hob_pipeline::plan::Plan::parse(text) {
        Ok(plan) => drop(plan.secrets().count()),
        Err(error) => assert!(error.line <= text.split('\n').count(), "{error:?}"),
    }
}

/// A schema is rejected, or it can be linted and documented, and each of its example keys belongs to its family.
pub fn schema(data: &[u8]) {
    let Some(text) = crate::text(data) else { return };
    let Ok(schema) = Schema::parse("fuzz.toml", text) else { return };
    let _ = lint::report_json(&lint::lint(&schema));
    let _ = docs::markdown(&schema);
    for layout in [Layout::Plain, Layout::Tagged] {
        let Ok(catalog) = Catalog::new(vec![schema.clone()], layout) else { continue };
        let _ = hob_schema::acl(&catalog, "user");
        catalog.spaces().iter().for_each(|space| check_examples(&catalog, space));
    }
}

fn check_examples(catalog: &Catalog, space: &Keyspace) {
    for (id, family) in catalog.families() {
        let _ = examples::shell_words(&examples::example_read(space, id.family));
        examples::example_write(space, id.family)
            .iter()
            .for_each(|command| drop(examples::shell_words(command)));
        let key = examples::example_key(space, id.family);
        let found = catalog.find(key.as_bytes()).map(|found| found.family);
        assert_eq!(found, Some(id), "{key} of {}", family.name);
    }
}
