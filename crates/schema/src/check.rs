//! Checks one key against the family that declares it. Works on facts that the caller has read, without a connection or a
//! clock; strict tests and the audit share it.

mod stream;

use serde::{Deserialize, Serialize};

pub use stream::{GroupFacts, StreamFacts};

use crate::catalog::Catalog;
use crate::lint::Severity;
use crate::model::value::{Mismatch, Value, quoted};
use crate::model::{Content, Family, Field, FieldName, Presence, Schema, TtlRule};
use crate::units::{format_about, format_duration};

/// Facts about a key. An unknown fact does not break a rule.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The reply of `TYPE`, also for streams and the types of modules.
    pub kind: Option<String>,
    pub expiry: Expiry,
    /// Items, members or fields; bytes of a string.
    pub len: Option<u64>,
    pub sample: Sample,
    /// Only of a stream.
    pub stream: StreamFacts,
    /// Fields of a hash, all or some, with their TTLs.
    pub field_expiry: Vec<(Vec<u8>, Expiry)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    #[default]
    Unknown,
    Never,
    InMillis(u64),
}

/// Values of a key, all or some.
#[derive(Clone, Debug, Default)]
pub enum Sample {
    #[default]
    Unread,
    Text(Vec<u8>),
    /// Fields with values. `whole` is true if all fields were read, so that missing fields can be reported.
    Hash {
        fields: Vec<(Vec<u8>, Vec<u8>)>,
        whole: bool,
    },
    /// Items of a list or members of a set.
    Items(Vec<Vec<u8>>),
    Scored(Vec<(Vec<u8>, f64)>),
    /// The fields of entries of a stream.
    Entries(Vec<Vec<(Vec<u8>, Vec<u8>)>>),
}

/// The ways in which a key, or a command that writes it, can break its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Breach {
    /// The key could not be read, so it was not checked.
    Unreadable,
    UndeclaredKey,
    WrongType,
    MissingTtl,
    LongTtl,
    UnexpectedTtl,
    OverLong,
    MisfitValue,
    MissingField,
    UndeclaredField,
    MissingFieldTtl,
    LongFieldTtl,
    UnexpectedFieldTtl,
    UndeclaredGroup,
    OverPending,
    OldEntry,
    TooManyKeys,
    BrokenSum,
    /// The keys of a command are not in one Cluster slot.
    CrossSlot,
}

hob_units::names!(Breach {
    Unreadable = "unreadable",
    UndeclaredKey = "undeclared-key",
    WrongType = "wrong-type",
    MissingTtl = "missing-ttl",
    LongTtl = "long-ttl",
    UnexpectedTtl = "unexpected-ttl",
    OverLong = "over-long",
    MisfitValue = "misfit-value",
    MissingField = "missing-field",
    UndeclaredField = "undeclared-field",
    MissingFieldTtl = "missing-field-ttl",
    LongFieldTtl = "long-field-ttl",
    UnexpectedFieldTtl = "unexpected-field-ttl",
    UndeclaredGroup = "undeclared-group",
    OverPending = "over-pending",
    OldEntry = "old-entry",
    TooManyKeys = "too-many-keys",
    BrokenSum = "broken-sum",
    CrossSlot = "cross-slot",
});

impl Breach {
    pub fn severity(self) -> Severity {
        match self {
            Breach::Unreadable
            | Breach::WrongType
            | Breach::MissingTtl
            | Breach::OverLong
            | Breach::MisfitValue
            | Breach::MissingFieldTtl
            | Breach::OverPending
            | Breach::CrossSlot => Severity::Error,
            Breach::UndeclaredKey
            | Breach::LongTtl
            | Breach::UnexpectedTtl
            | Breach::MissingField
            | Breach::UndeclaredField
            | Breach::LongFieldTtl
            | Breach::UnexpectedFieldTtl
            | Breach::UndeclaredGroup
            | Breach::OldEntry
            | Breach::TooManyKeys
            | Breach::BrokenSum => Severity::Warning,
        }
    }
}

/// One breach with a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub breach: Breach,
    pub message: String,
}

fn violation(breach: Breach, message: impl Into<String>) -> Violation {
    Violation { breach, message: message.into() }
}

/// All violations of a key of `family`.
pub fn check_facts(schema: &Schema, family: &Family, facts: &Facts) -> Vec<Violation> {
    let declared = family.type_name();
    if let Some(kind) = facts.kind.as_deref().filter(|kind| *kind != declared) {
        // The other rules are for the declared type.
        if family.also.iter().any(|also| also == kind) {
            return check_ttl(&family.ttl.rule, facts.expiry).into_iter().collect();
        }
        return vec![violation(Breach::WrongType, format!("is a {kind}, but is declared as a {declared}"))];
    }
    let mut violations: Vec<Violation> = check_ttl(&family.ttl.rule, facts.expiry).into_iter().collect();
    if let (Some(len), Some(max)) = (facts.len, family.max_len.as_ref())
        && family.kind() != crate::model::KeyType::String
        && len > max.value
    {
        violations.push(violation(Breach::OverLong, format!("has {len} elements, more than {}", max.value)));
    }
    check_sample(schema, &family.content, &facts.sample, &mut violations);
    // Of a long value only the length is known.
    if let (Content::String(value), Sample::Unread, Some(len)) = (&family.content, &facts.sample, facts.len)
        && let Err(mismatch) = value.fits_len(len)
    {
        violations.push(violation(Breach::MisfitValue, mismatch.to_string()));
    }
    stream::check(&family.stream, &facts.stream, &mut violations);
    if let Some(rule) = &family.field_ttl {
        check_field_ttls(rule, &facts.field_expiry, &mut violations);
    }
    violations
}

/// At most one violation of each kind.
fn check_field_ttls(rule: &TtlRule, fields: &[(Vec<u8>, Expiry)], violations: &mut Vec<Violation>) {
    let mut found: Vec<Violation> = Vec::new();
    for (name, expiry) in fields {
        let Some(broken) = check_ttl(rule, *expiry) else { continue };
        let breach = match broken.breach {
            Breach::MissingTtl => Breach::MissingFieldTtl,
            Breach::LongTtl => Breach::LongFieldTtl,
            _ => Breach::UnexpectedFieldTtl,
        };
        if found.iter().all(|known| known.breach != breach) {
            let name = quoted(&String::from_utf8_lossy(name));
            found.push(violation(breach, format!("field {name} {}", broken.message)));
        }
    }
    violations.append(&mut found);
}

/// All violations of a key, which may also be undeclared.
pub fn check_key(catalog: &Catalog, key: &[u8], facts: &Facts) -> Vec<Violation> {
    match catalog.find(key) {
        Some(found) => check_facts(catalog.schema(found.family), catalog.family(found.family), facts),
        None => vec![violation(Breach::UndeclaredKey, "does not belong to a declared family")],
    }
}

fn check_ttl(rule: &TtlRule, expiry: Expiry) -> Option<Violation> {
    match expiry {
        Expiry::Unknown => None,
        Expiry::Never if rule.required() => Some(violation(Breach::MissingTtl, "never expires")),
        Expiry::Never => None,
        Expiry::InMillis(left_ms) => {
            let left = std::time::Duration::from_millis(left_ms);
            match rule.longest() {
                Some(longest) if left > longest => Some(violation(
                    Breach::LongTtl,
                    format!("expires in {}, later than {}", format_about(left), format_duration(longest)),
                )),
                None if matches!(rule, TtlRule::None { .. }) => {
                    let message = format!("expires in {}, but is declared without a TTL", format_about(left));
                    Some(violation(Breach::UnexpectedTtl, message))
                }
                _ => None,
            }
        }
    }
}

fn check_sample(schema: &Schema, content: &Content, sample: &Sample, violations: &mut Vec<Violation>) {
    let mut mismatch = |message: &str, result: Result<(), Mismatch>| {
        if let Err(mismatch) = result {
            violations.push(violation(Breach::MisfitValue, format!("{message}{mismatch}")));
            return false;
        }
        true
    };
    match (content, sample) {
        (Content::String(value), Sample::Text(bytes)) => {
            mismatch("", value.fits(bytes, schema));
        }
        (Content::List(value) | Content::Set(value), Sample::Items(items)) => {
            // One mismatch per key is enough.
            let _ = items.iter().all(|item| mismatch("an element: ", value.fits(item, schema)));
        }
        (Content::Zset { member, score }, Sample::Scored(members)) => {
            let _ = members.iter().all(|(bytes, value)| {
                mismatch("a member: ", member.fits(bytes, schema))
                    && mismatch("a member: ", score.fits_score(*value))
            });
        }
        (Content::Hash(declared), Sample::Hash { fields, whole }) => {
            judge_fields(schema, declared, fields, *whole, violations);
        }
        (Content::Stream(declared), Sample::Entries(entries)) => {
            for fields in entries {
                let before = violations.len();
                judge_fields(schema, declared, fields, true, violations);
                // One wrong entry per key is enough.
                if violations.len() > before {
                    break;
                }
            }
        }
        _ => {}
    }
}

fn judge_fields(
    schema: &Schema,
    declared: &[Field],
    fields: &[(Vec<u8>, Vec<u8>)],
    whole: bool,
    violations: &mut Vec<Violation>,
) {
    if declared.is_empty() {
        return;
    }
    for (name, value) in fields {
        let shown = quoted(&String::from_utf8_lossy(name));
        match field_value(schema, declared, name) {
            None => {
                violations.push(violation(Breach::UndeclaredField, format!("field {shown} is not declared")));
            }
            Some(shape) => {
                if let Err(mismatch) = shape.fits(value, schema) {
                    violations.push(violation(Breach::MisfitValue, format!("field {shown}: {mismatch}")));
                }
            }
        }
    }
    for field in declared.iter().filter(|field| whole && field.presence == Presence::Required) {
        if let FieldName::Exact(name) = &field.name
            && !fields.iter().any(|(present, _)| present == name.as_bytes())
        {
            violations.push(violation(Breach::MissingField, format!("field {name:?} is missing")));
        }
    }
}

/// Checks that an example in the file matches its family. The error says why it does not.
pub(crate) fn fits_example(
    schema: &Schema,
    family: &Family,
    field: Option<&str>,
    text: &str,
) -> Result<(), Mismatch> {
    match (&family.content, field) {
        (Content::Hash(fields) | Content::Stream(fields), Some(name)) => {
            match field_value(schema, fields, name.as_bytes()) {
                Some(value) => value.fits(text.as_bytes(), schema),
                None => Err(Mismatch(format!("field {name:?} is not declared"))),
            }
        }
        (Content::Hash(_) | Content::Stream(_), None) => {
            Err(Mismatch("needs its fields: { name = \"value\" }".into()))
        }
        (Content::Module(_), _) => Err(Mismatch("the type of a module has no example".into())),
        (_, Some(_)) => Err(Mismatch("only a hash or a stream has fields".into())),
        (Content::String(value) | Content::List(value) | Content::Set(value), None) => {
            value.fits(text.as_bytes(), schema)
        }
        (Content::Zset { member, .. }, None) => member.fits(text.as_bytes(), schema),
    }
}

/// The rule for a field: the rule for its name, or else for ids that the name can be, or else for all other fields.
fn field_value<'f>(schema: &Schema, declared: &'f [Field], name: &[u8]) -> Option<&'f Value> {
    let text = std::str::from_utf8(name).ok();
    let exact = declared
        .iter()
        .find(|field| matches!(&field.name, FieldName::Exact(exact) if Some(exact.as_str()) == text));
    let id = || {
        declared.iter().find(|field| match field.name {
            FieldName::Id(id) => text.is_some_and(|text| schema.ids[id].check(text).is_ok()),
            _ => false,
        })
    };
    let any = || declared.iter().find(|field| field.name == FieldName::Any);
    exact.or_else(id).or_else(any).map(|field| &field.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations_of(family: &str, facts: &Facts) -> Vec<&'static str> {
        let text = format!(
            "[schema]\nname = \"t\"\nversion = 1\n[ids]\nx = {{}}\n[key.k]\npattern = \"k:<x>\"\n{family}\n\
             [shape.point]\nx = \"int\"\ny = \"int?\"\n"
        );
        let schema = Schema::parse("t.toml", &text).unwrap_or_else(|errors| panic!("{errors}"));
        check_facts(&schema, &schema.families[0], facts)
            .iter()
            .map(|violation| violation.breach.as_str())
            .collect()
    }

    #[test]
    fn only_the_wrong_type_is_reported() {
        let facts = Facts { kind: Some("stream".into()), expiry: Expiry::Never, ..Facts::default() };
        assert_eq!(violations_of("type = \"set\"\nttl = { max = \"1h\" }", &facts), ["wrong-type"]);
    }

    #[test]
    fn ttls_are_checked() {
        let ttl = |rule: &str, expiry| {
            violations_of(&format!("type = \"string\"\nttl = {rule}"), &Facts { expiry, ..Facts::default() })
        };
        assert_eq!(ttl("{ max = \"1s\" }", Expiry::Never), ["missing-ttl"]);
        assert_eq!(ttl("{ max = \"1s\" }", Expiry::InMillis(1_001)), ["long-ttl"]);
        assert_eq!(ttl("{ max = \"1s\" }", Expiry::InMillis(1_000)), [""; 0]);
        assert_eq!(ttl("{ none = \"x\" }", Expiry::InMillis(5)), ["unexpected-ttl"]);
        assert_eq!(ttl("{ none = \"x\" }", Expiry::Never), [""; 0]);
        assert_eq!(ttl("{ late = \"1s\", why = \"x\" }", Expiry::Never), [""; 0]);
        assert_eq!(ttl("{ late = \"1s\", why = \"x\" }", Expiry::InMillis(2_000)), ["long-ttl"]);
        let after = "{ max = \"1s\", after = \"x\", backstop = \"5s\" }";
        assert_eq!(ttl(after, Expiry::Never), ["missing-ttl"]);
        assert_eq!(ttl(after, Expiry::InMillis(4_000)), [""; 0]);
        assert_eq!(ttl(after, Expiry::InMillis(6_000)), ["long-ttl"]);
    }

    #[test]
    fn ttls_of_fields_are_checked() {
        let fields = |rule: &str, expiry: &[Expiry]| {
            let field_expiry = expiry.iter().map(|expiry| (b"f".to_vec(), *expiry)).collect();
            let facts = Facts { field_expiry, ..Facts::default() };
            violations_of(&format!("type = \"hash\"\nfield_ttl = {rule}"), &facts)
        };
        let (never, soon, late) = (Expiry::Never, Expiry::InMillis(900), Expiry::InMillis(5_000));
        assert_eq!(fields("{ max = \"1s\" }", &[soon, soon]), [""; 0]);
        assert_eq!(
            fields("{ max = \"1s\" }", &[never, late, never, late]),
            ["missing-field-ttl", "long-field-ttl"]
        );
        assert_eq!(fields("{ late = \"1s\", why = \"x\" }", &[never, soon]), [""; 0]);
        assert_eq!(fields("{ none = \"x\" }", &[never, soon]), ["unexpected-field-ttl"]);
    }

    #[test]
    fn groups_and_age_of_streams_are_checked() {
        let stream = "type = \"stream\"\ngroups = [\"billing\"]\nmax_pending = 10\nmax_age = \"1h\"";
        let facts = |groups: &[(&str, u64)], oldest_ms| {
            let group = |(name, pending): &(&str, u64)| GroupFacts {
                name: name.as_bytes().to_vec(),
                pending: *pending,
            };
            let stream = StreamFacts { groups: groups.iter().map(group).collect(), oldest_ms };
            Facts { stream, ..Facts::default() }
        };
        assert_eq!(violations_of(stream, &facts(&[("billing", 10)], Some(3_600_000))), [""; 0]);
        assert_eq!(
            violations_of(stream, &facts(&[("other", 11)], None)),
            ["undeclared-group", "over-pending"]
        );
        assert_eq!(violations_of(stream, &facts(&[], Some(3_600_001))), ["old-entry"]);
        assert_eq!(violations_of("type = \"stream\"", &facts(&[("other", 11)], Some(u64::MAX))), [""; 0]);
    }

    #[test]
    fn length_of_an_unread_string_is_checked() {
        let facts = |len| Facts { len: Some(len), ..Facts::default() };
        let bitmap = "type = \"string\"\nvalue = { bitmap = \"1 KiB\" }";
        assert_eq!(violations_of(bitmap, &facts(1_024)), [""; 0]);
        assert_eq!(violations_of(bitmap, &facts(1_025)), ["misfit-value"]);
    }

    #[test]
    fn binary_forms_and_places_are_checked() {
        let text = |form: &str, value: &[u8]| {
            let facts = Facts { sample: Sample::Text(value.to_vec()), ..Facts::default() };
            violations_of(&format!("type = \"string\"\nvalue = {form}"), &facts)
        };
        assert_eq!(text("{ bitmap = 2 }", b"\xff\x00"), [""; 0]);
        assert_eq!(text("{ bitmap = 2 }", b"\xff\x00\x01"), ["misfit-value"]);
        assert_eq!(text("{ msgpack = 8 }", b"\x81\xa1a\x01"), [""; 0]);
        assert_eq!(text("{ msgpack = 3 }", b"\x81\xa1a\x01"), ["misfit-value"]);
        assert_eq!(text("{ msgpack = 8 }", b"text"), ["misfit-value"]);
        assert_eq!(text("{ protobuf = 8 }", b"\x08\x96\x01"), [""; 0]);
        assert_eq!(text("\"hyperloglog\"", b"text"), ["misfit-value"]);
        let place =
            |score| Facts { sample: Sample::Scored(vec![(b"Palermo".to_vec(), score)]), ..Facts::default() };
        let places = "type = \"zset\"\nscore = \"geo\"";
        assert_eq!(violations_of(places, &place(3_479_099_956_230_698.0)), [""; 0]);
        for wrong in [1.5, -1.0, 4_503_599_627_370_496.0] {
            assert_eq!(violations_of(places, &place(wrong)), ["misfit-value"]);
        }
    }

    #[test]
    fn length_and_elements_of_collections_are_checked() {
        let list = "type = \"list\"\nmax_len = 2\nitem = { json = \"point\" }";
        let items = |items: &[&str]| Facts {
            len: Some(items.len() as u64),
            sample: Sample::Items(items.iter().map(|item| item.as_bytes().to_vec()).collect()),
            ..Facts::default()
        };
        assert_eq!(violations_of(list, &items(&["{\"x\":1}", "{\"x\":1,\"y\":2}"])), [""; 0]);
        assert_eq!(violations_of(list, &items(&["{\"x\":1.5}"])), ["misfit-value"]);
        assert_eq!(violations_of(list, &items(&["{\"x\":1,\"z\":1}"])), ["misfit-value"]);
        assert_eq!(violations_of(list, &items(&["{\"x\":1}"; 3])), ["over-long"]);
        let zset = "type = \"zset\"\nmember = \"int\"\nscore = \"unix_ms\"";
        let scored = |member: &str, score| Facts {
            sample: Sample::Scored(vec![(member.as_bytes().to_vec(), score)]),
            ..Facts::default()
        };
        assert_eq!(violations_of(zset, &scored("5", 1_672_531_200_123.0)), [""; 0]);
        assert_eq!(violations_of(zset, &scored("5", 1_672_531_200.0)), ["misfit-value"]);
        assert_eq!(violations_of(zset, &scored("five", 1_672_531_200_123.0)), ["misfit-value"]);
    }

    #[test]
    fn undeclared_key_is_a_violation() {
        let text = "[schema]\nname = \"t\"\nversion = 1\n[key.k]\npattern = \"k\"\ntype = \"set\"\n";
        let schema = Schema::parse("t.toml", text).unwrap();
        let catalog = Catalog::new(vec![schema], crate::keyspace::Layout::Plain).unwrap();
        let list = Facts { kind: Some("list".into()), ..Facts::default() };
        let breaches =
            |key: &[u8]| check_key(&catalog, key, &list).iter().map(|v| v.breach).collect::<Vec<_>>();
        assert_eq!(breaches(b"k"), [Breach::WrongType]);
        assert_eq!(breaches(b"other"), [Breach::UndeclaredKey]);
    }

    #[test]
    fn fields_of_hashes_are_checked() {
        let hash = "type = \"hash\"\nfields = { n = \"int\", flag = \"bool?\" }";
        let fields = |fields: &[(&str, &str)], whole| {
            let fields =
                fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
            Facts { sample: Sample::Hash { fields: fields.collect(), whole }, ..Facts::default() }
        };
        assert_eq!(violations_of(hash, &fields(&[("n", "1")], true)), [""; 0]);
        assert_eq!(violations_of(hash, &fields(&[("n", "1"), ("flag", "yes")], true)), ["misfit-value"]);
        assert_eq!(violations_of(hash, &fields(&[("flag", "1")], true)), ["missing-field"]);
        assert_eq!(violations_of(hash, &fields(&[("flag", "1")], false)), [""; 0]);
        assert_eq!(violations_of(hash, &fields(&[("n", "1"), ("m", "1")], true)), ["undeclared-field"]);
    }
}
