//! `/keys`: the declared key families, and the keys that an audit found.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Redirect;
use hob_schema::docs::words;
use hob_schema::lint::Severity;
use hob_schema::{Content, Family, FamilyId, Schema};
use hob_schema_audit::{AuditReport, FamilyUse};
use hob_store::{Call, Store, cmd};
use hob_web::chart::Shares;
use hob_web::components::{
    Badge, Empty, Escaped, Facts, Field, Markup, Quantity, RelativeTime, Tone, Unit, link,
};
use hob_web::{Console, Page, Path, Problem, Query, Scope};
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use super::SCOPE;
use super::audit::{AuditRun, AuditState, BackgroundAudit};

/// Maximum number of keys of a family that are shown.
const MAX_SAMPLES: usize = 20;

/// Limits of the search for keys on one server, and the maximum time for all servers.
const MAX_SCANS: usize = 40;
const SCAN_COUNT: usize = 500;
const MAX_SCAN_TIME: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
pub(crate) struct Search {
    #[serde(default)]
    q: String,
    #[serde(default)]
    sort: Sort,
}

/// The order of the schemas and their families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Sort {
    /// As declared.
    #[default]
    Schema,
    /// The largest first.
    Memory,
}

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage {
    search: Field,
    searched: String,
    /// The family of the searched text, if the text is a key.
    holder: Option<(String, String)>,
    schemas: Vec<SchemaRows>,
    /// Memory by family, once there was an audit.
    memory: Option<Markup>,
    sort: Sort,
    state: AuditState,
    may_audit: bool,
}

/// A schema with the requested families.
struct SchemaRows {
    name: String,
    purpose: String,
    rows: Vec<Row>,
}

struct Row {
    href: String,
    name: String,
    pattern: String,
    kind: &'static str,
    ttl: String,
    contract: String,
    /// Keys and bytes in the latest audit, if there was one.
    found: Option<(u64, u64)>,
}

impl SchemaRows {
    fn keys(&self) -> Quantity {
        Quantity::count(self.rows.iter().filter_map(|row| row.found).map(|(keys, _)| keys).sum::<u64>())
    }

    fn bytes(&self) -> u64 {
        self.rows.iter().filter_map(|row| row.found).map(|(_, bytes)| bytes).sum()
    }

    fn memory(&self) -> Quantity {
        Quantity::bytes(self.bytes())
    }
}

impl KeysPage {
    /// The orders of the families: label, address, and whether it is the current one.
    fn orders(&self) -> [(&'static str, String, bool); 2] {
        let order = |label, word: &str, sort| {
            (label, link("/keys", &[("sort", word), ("q", &self.searched)]), self.sort == sort)
        };
        [order("By schema", "schema", Sort::Schema), order("By memory", "memory", Sort::Memory)]
    }

    fn badge(&self) -> Badge {
        match (&self.state.run, &self.state.report) {
            (AuditRun::Failed { .. }, _) => Tone::Bad.badge("failed"),
            (_, Some(report)) => verdict(&report.audit),
            (AuditRun::Running { .. }, None) => Tone::Busy.badge("first audit running"),
            (AuditRun::Idle, None) => Tone::Idle.badge("not audited yet"),
        }
    }

    fn progress(&self) -> Option<Quantity> {
        match self.state.run {
            AuditRun::Running { keys, expected } => Some(Quantity::share(keys.min(expected), expected)),
            _ => None,
        }
    }

    fn failure(&self) -> Option<&str> {
        match &self.state.run {
            AuditRun::Failed { reason, .. } => Some(reason),
            _ => None,
        }
    }

    fn no_family(&self) -> Empty {
        Empty::new("No families found", format!("No declared family contains “{}”.", self.searched))
            .link("Show all", "/keys")
    }
}

fn verdict(audit: &AuditReport) -> Badge {
    match audit.worst() {
        None => Tone::Good.badge("as declared"),
        Some(severity) => {
            let kinds = audit.violations.len() + audit.undeclared.len();
            tone(&severity).badge(format!("{kinds} {}", if kinds == 1 { "finding" } else { "findings" }))
        }
    }
}

fn tone(severity: &Severity) -> Tone {
    match severity {
        Severity::Error => Tone::Bad,
        _ => Tone::Warn,
    }
}

pub(crate) async fn page(
    console: Console,
    State(audit): State<BackgroundAudit>,
    Query(search): Query<Search>,
) -> Result<Page, Problem> {
    let state = audit.refresh();
    let searched: String = search.q.trim().chars().take(512).collect();
    let catalog = audit.catalog();
    let holder = catalog.find(searched.as_bytes()).map(|found| {
        let (schema, family) = (catalog.schema(found.family), catalog.family(found.family));
        (format!("{}.{}", schema.name, family.name), href(schema, family))
    });
    let mut schemas = rows(&audit, &state, if holder.is_some() { "" } else { &searched });
    let memory = memory_bar(&schemas).filter(|_| state.report.is_some());
    if search.sort == Sort::Memory {
        for schema in &mut schemas {
            schema.rows.sort_by_key(|row| Reverse(row.found.map(|(_, bytes)| bytes)));
        }
        schemas.sort_by_key(|schema| Reverse(schema.bytes()));
    }
    let rows = KeysPage {
        search: Field::search("q", "Family, pattern, contract or a whole key")
            .value(&searched)
            .autocomplete("off")
            .max_length(512),
        schemas,
        memory,
        sort: search.sort,
        searched,
        holder,
        state,
        may_audit: console.may(&Scope::write(SCOPE)),
    };
    console.page("Keys", &rows)
}

/// The memory of the largest families; `None` if none has any.
fn memory_bar(schemas: &[SchemaRows]) -> Option<Markup> {
    let mut bar = Shares::new("Memory by family", Unit::Bytes);
    for schema in schemas {
        for row in &schema.rows {
            let (_, bytes) = row.found.unwrap_or_default();
            bar = bar.part(format!("{}.{}", schema.name, row.name), bytes as f64);
        }
    }
    bar.render()
}

/// The families whose description contains the text.
fn rows(audit: &BackgroundAudit, state: &AuditState, text: &str) -> Vec<SchemaRows> {
    let found: HashMap<&str, &FamilyUse> = match &state.report {
        Some(report) => report.audit.families.iter().map(|family| (family.family.as_str(), family)).collect(),
        None => HashMap::new(),
    };
    let wanted = text.to_lowercase();
    let mut schemas: Vec<SchemaRows> = Vec::new();
    for (id, family) in audit.catalog().families() {
        let schema = audit.catalog().schema(id);
        let full = format!("{}.{}", schema.name, family.name);
        let row = Row {
            href: href(schema, family),
            name: family.name.clone(),
            pattern: format!("{}{}", schema.prefix.value, family.pattern.text),
            kind: family.kind().as_str(),
            ttl: words::ttl(&family.ttl.rule),
            contract: family.contract.join(" "),
            found: state
                .report
                .as_ref()
                .map(|_| found.get(full.as_str()).map_or((0, 0), |family| (family.keys, family.bytes))),
        };
        let purpose = family.purpose.as_deref().unwrap_or_default();
        let described = [&full, &row.pattern, &row.contract, purpose, row.kind].join("\n").to_lowercase();
        if !described.contains(&wanted) {
            continue;
        }
        match schemas.last_mut() {
            Some(last) if last.name == schema.name => last.rows.push(row),
            _ => schemas.push(SchemaRows {
                name: schema.name.clone(),
                purpose: schema.purpose.clone().unwrap_or_default(),
                rows: vec![row],
            }),
        }
    }
    schemas
}

/// Names of schemas and families are plain words, which need no escape in a path.
pub(super) fn href(schema: &Schema, family: &Family) -> String {
    format!("/keys/{}/{}", schema.name, family.name)
}

/// Starts an audit unless one is running.
pub(crate) async fn audit_now(State(audit): State<BackgroundAudit>) -> Redirect {
    audit.request();
    Redirect::to("/keys")
}

#[derive(Template)]
#[template(path = "family.html")]
struct FamilyPage {
    purpose: String,
    facts: Facts,
    fields: Vec<(Markup, Markup)>,
    note: Option<Markup>,
    samples: Result<Vec<Sample>, String>,
}

/// An existing key.
struct Sample {
    key: String,
    ttl: Ttl,
    bytes: Option<u64>,
}

enum Ttl {
    Millis(u64),
    None,
    /// Deleted during the search.
    Gone,
}

impl Sample {
    fn ttl(&self) -> String {
        match self.ttl {
            Ttl::Millis(ms) => Quantity::millis(ms).to_string(),
            Ttl::None => "none".to_owned(),
            Ttl::Gone => "gone".to_owned(),
        }
    }

    fn bytes(&self) -> Quantity {
        Unit::Bytes.of(self.bytes.map_or(f64::NAN, |bytes| bytes as f64))
    }
}

pub(crate) async fn family_page(
    console: Console,
    State(audit): State<BackgroundAudit>,
    Path((schema, family)): Path<(String, String)>,
) -> Result<Page, Problem> {
    let catalog = audit.catalog();
    let named = |(id, candidate): &(FamilyId, &Family)| {
        candidate.name == family && catalog.schema(*id).name == schema
    };
    let (id, family) = catalog.families().find(named).ok_or_else(|| Problem::not_found("family"))?;
    let schema = catalog.schema(id);
    let glob = catalog.spaces()[id.schema].glob(id.family);
    let samples = samples(audit.store(), &glob).await.map_err(|error| error.to_string());
    // The glob may also match keys of other families.
    let samples = samples.map(|all| {
        let ours =
            |sample: &Sample| catalog.find(sample.key.as_bytes()).is_some_and(|found| found.family == id);
        all.into_iter().filter(ours).take(MAX_SAMPLES).collect()
    });
    let fields = match &family.content {
        Content::Hash(fields) => fields
            .iter()
            .map(|field| {
                let value = words::value(&field.value, schema) + words::presence(field.presence);
                (coded(&words::field_name(&field.name, schema)), coded(&value))
            })
            .collect(),
        _ => Vec::new(),
    };
    let page = FamilyPage {
        purpose: family.purpose.clone().unwrap_or_default(),
        facts: facts(schema, family),
        fields,
        note: family.note.as_deref().map(coded),
        samples,
    };
    console.page(&format!("{}.{}", schema.name, family.name), &page)
}

fn facts(schema: &Schema, family: &Family) -> Facts {
    let none = |words: &[String]| if words.is_empty() { "–".to_owned() } else { words.join(", ") };
    Facts::new()
        .code("Pattern", format!("{}{}", schema.prefix.value, family.pattern.text))
        .markup("Holds", coded(&words::content(&family.content, schema)))
        .markup("TTL", coded(&words::ttl_sentence(family)))
        .text("Bound", words::bound(family))
        .markup("Slot", coded(&words::tag(family, schema)))
        .text("Written by", none(&family.writers))
        .text("Contract", none(&family.contract))
}

/// Text between backticks becomes code.
fn coded(text: &str) -> Markup {
    let part = |(index, part): (usize, &str)| match index % 2 {
        0 => Escaped(part).to_string(),
        _ => format!("<code>{}</code>", Escaped(part)),
    };
    Markup::trusted(text.split('`').enumerate().map(part).collect::<String>())
}

/// A few keys that match, from all servers.
async fn samples(store: &Store, glob: &[u8]) -> hob_store::Result<Vec<Sample>> {
    let until = Instant::now() + MAX_SCAN_TIME;
    let mut keys: HashSet<Vec<u8>> = HashSet::new();
    for master in timeout(MAX_SCAN_TIME, store.masters()).await.unwrap_or_else(|_| Ok(Vec::new()))? {
        let mut cursor = 0;
        for _ in 0..MAX_SCANS {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(glob).arg("COUNT").arg(SCAN_COUNT);
            let (next, found): (u64, Vec<Vec<u8>>) = master.run(scan).await?;
            keys.extend(found);
            cursor = next;
            if cursor == 0 || keys.len() >= 4 * MAX_SAMPLES || Instant::now() > until {
                break;
            }
        }
    }
    let mut keys: Vec<Vec<u8>> = keys.into_iter().take(4 * MAX_SAMPLES).collect();
    keys.sort_unstable();
    let asked = keys.iter().flat_map(|key| {
        let memory = cmd("MEMORY").arg("USAGE").arg(key).clone();
        [Call::from(cmd("PTTL").arg(key).clone()), Call::from(memory)]
    });
    let answers = store.batch(&asked.collect::<Vec<_>>()).await;
    let number = |answer: &hob_store::Result<hob_store::Value>| match answer {
        Ok(hob_store::Value::Int(number)) => Some(*number),
        _ => None,
    };
    let sample = |(key, answers): (Vec<u8>, &[hob_store::Result<hob_store::Value>])| Sample {
        key: String::from_utf8_lossy(&key).into_owned(),
        ttl: match number(&answers[0]) {
            Some(-1) => Ttl::None,
            Some(ms @ 0..) => Ttl::Millis(ms.unsigned_abs()),
            _ => Ttl::Gone,
        },
        bytes: number(&answers[1]).map(i64::unsigned_abs),
    };
    Ok(keys.into_iter().zip(answers.chunks(2)).map(sample).collect())
}
