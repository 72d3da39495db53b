//! Ready-made schemas: those of libraries, and Hob's own.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use hob_schema::Schema;
use hob_schema_audit::{Known, ready_name, ready_schema, ready_schemas, ready_text};

use super::own;

/// The name of Hob's own schemas.
const HOB: &str = "hob";
/// So many families of one of Hob's services make it recognizable, because its keys have common names.
const HOB_FAMILIES: usize = 4;

/// The list of all ready-made schemas, or the text of one.
pub(super) fn show(name: Option<&str>) -> Result<String> {
    if name == Some(HOB) {
        bail!("Hob has one schema per service; `hob schema docs` prints them as pages");
    }
    if let Some(name) = name {
        return Ok(ready_text(name)?.to_owned());
    }
    let mut list = format!("{:<18} {:<18} {}\n", "NAME", "PREFIX", "FOR");
    for schema in ready_schemas()? {
        let (purpose, note) = (schema.purpose.as_deref(), schema.note.as_deref());
        let prefix = if schema.prefix.value.is_empty() { "-" } else { &schema.prefix.value };
        let (purpose, note) = (purpose.unwrap_or_default(), note.unwrap_or_default());
        let _ = writeln!(list, "{:<18} {prefix:<18} {purpose} {note}", ready_name(&schema));
    }
    let _ = writeln!(list, "{HOB:<18} {:<18} Hob and its services. Checked in its tests.", "-");
    Ok(list)
}

/// The schemas of a `--with`.
pub(super) fn chosen(choice: &str) -> Result<Vec<Schema>> {
    if choice == HOB { own() } else { Ok(vec![ready_schema(choice)?]) }
}

/// What `infer` recognizes.
pub(super) fn recognizable() -> Result<Vec<Known>> {
    let hob = own()?.into_iter().map(|schema| Known { name: HOB.to_owned(), schema, families: HOB_FAMILIES });
    Ok(hob_schema_audit::recognizable()?.into_iter().chain(hob).collect())
}
