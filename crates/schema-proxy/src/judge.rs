//! Judges a command by its words alone, before it is forwarded, and says which keys have to be read afterwards.

use std::borrow::Cow;

use hob_commands::{KeyType, Keys, key_slot};
use hob_schema::check::{Breach, Expiry, Facts, Sample, Violation, check_facts};
use hob_schema::{Catalog, Content, Family, FamilyId, FieldName, Presence, Schema, Value, quoted};
use smallvec::SmallVec;

use crate::expiry::{NewTtl, new_ttl};
use crate::framing::MAX_JUDGED_BYTES;
use crate::rules::{Action, Rule};
use crate::session::Session;
use crate::writes::{Creation, Targets, Values, Write};

/// Whether the keys of a command, a transaction or a script must be in the same Cluster slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    Any,
    One,
}

/// What to do about a script that names an undeclared key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndeclaredScriptKeys {
    /// It is a violation only if the key exists after the script: some libraries pass a key only for its name.
    IfWritten,
    Always,
}

/// The schemas, and how strictly they are applied.
#[derive(Debug)]
pub(crate) struct Judge {
    pub(crate) catalog: Catalog,
    pub(crate) slots: Slots,
    pub(crate) undeclared_script_keys: UndeclaredScriptKeys,
}

/// The words of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) words: &'a [&'a [u8]],
    /// A long command is judged before all of it has arrived: the length of the next word, if that is known.
    pub(crate) cut: Option<Option<usize>>,
}

impl<'a> Request<'a> {
    fn word(&self, at: usize) -> Option<&'a [u8]> {
        self.words.get(at).copied()
    }

    fn from(&self, at: usize) -> &'a [&'a [u8]] {
        self.words.get(at..).unwrap_or_default()
    }
}

/// A command that breaks the schemas, as far as its words show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) key: Vec<u8>,
    pub(crate) family: Option<FamilyId>,
    pub(crate) violation: Violation,
}

#[derive(Debug, Default)]
pub(crate) struct Verdict<'a> {
    pub(crate) findings: Vec<Finding>,
    /// Keys that show only afterwards whether they match.
    pub(crate) later: SmallVec<[&'a [u8]; 4]>,
}

impl Finding {
    /// The reply to a refused command.
    pub(crate) fn reply(&self) -> String {
        let text = format!(
            "SCHEMA {}: {} {}",
            self.violation.breach.as_str(),
            quoted(&String::from_utf8_lossy(&self.key)),
            self.violation.message
        );
        format!("-{}\r\n", text.replace(['\r', '\n'], " "))
    }
}

impl Judge {
    pub(crate) fn judge<'a>(&self, rule: &Rule, request: &Request<'a>, session: &mut Session) -> Verdict<'a> {
        let mut verdict = Verdict::default();
        match &rule.action {
            Action::Write(write) => self.judge_write(write, request, &mut verdict),
            Action::Script => self.judge_script(rule.keys, request, &mut verdict),
            Action::Remove | Action::Session(_) => {}
        }
        if self.slots == Slots::One {
            judge_slots(rule.keys, request, session, &mut verdict);
        }
        verdict
    }

    fn judge_write<'a>(&self, write: &Write, request: &Request<'a>, verdict: &mut Verdict<'a>) {
        match write.targets {
            Targets::At(at) => self.judge_at(write, at, request, verdict),
            Targets::All(Keys::Range { first, last, step }) => {
                let len = request.words.len() as i64;
                let last = if last < 0 { len + i64::from(last) } else { i64::from(last) };
                let end = usize::try_from(last + 1).unwrap_or(0).min(request.words.len());
                for at in (first..end).step_by(step) {
                    self.judge_at(write, at, request, verdict);
                }
                // Some of its keys may not have arrived.
                verdict.findings.extend(request.cut.map(|_| too_long()));
            }
            Targets::All(_) => {}
            Targets::Stored => {
                verdict.findings.extend(request.cut.map(|_| too_long()));
                let option = |word: &&[u8]| is_word(word, "store") || is_word(word, "storedist");
                if let Some(at) = request.words.iter().rposition(option) {
                    self.judge_at(write, at + 1, request, verdict);
                }
            }
            Targets::MadeStream => {
                if request.from(3).iter().any(|word| is_word(word, "mkstream")) {
                    self.judge_at(write, 2, request, verdict);
                }
            }
        }
    }

    /// Judges the key at this index.
    fn judge_at<'a>(&self, write: &Write, at: usize, request: &Request<'a>, verdict: &mut Verdict<'a>) {
        let Some(key) = request.word(at) else {
            verdict.findings.extend(request.cut.map(|_| too_long()));
            return;
        };
        let Some(id) = self.catalog.family_of(key) else {
            if write.creation == Creation::Creates {
                verdict.findings.push(undeclared(key));
            }
            return;
        };
        let (schema, family) = (self.catalog.schema(id), self.catalog.family(id));
        let ttl = new_ttl(write.ttl, request.words);
        let finding = |violation| Finding { key: key.to_vec(), family: Some(id), violation };
        let mut values = Sample::Unread;
        match (write.values, &family.content) {
            (Values::Text(_) | Values::TextAfterKey, Content::String(value)) => {
                let at = if let Values::Text(at) = write.values { at } else { at + 1 };
                verdict.findings.extend(judge_text(value, schema, request, at).map(finding));
            }
            (Values::Unknown | Values::WholeNumber, _) => {}
            (known, content) if is_constrained(content) => values = sample(known, request),
            _ => {}
        }
        let kind = write.kind.filter(|kind| *kind != family.kind());
        let expiry = expiry(ttl);
        // Most commands show nothing more.
        if kind.is_some() || expiry != Expiry::Unknown || !matches!(values, Sample::Unread) {
            let kind = kind.map(|kind| kind.as_str().to_owned());
            let facts = Facts { kind, expiry, sample: values, ..Facts::default() };
            verdict.findings.extend(check_facts(schema, family, &facts).into_iter().map(finding));
        }
        if request.cut.is_some() || needs_look(write, ttl, family) {
            verdict.later.push(key);
        }
    }

    fn judge_script<'a>(&self, keys: Keys, request: &Request<'a>, verdict: &mut Verdict<'a>) {
        let Keys::Counted { at } = keys else { return };
        if self.undeclared_script_keys == UndeclaredScriptKeys::Always {
            verdict.findings.extend(request.cut.map(|_| too_long()));
        }
        let count = request.word(at).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        for key in request.from(at + 1).iter().take(count.unwrap_or(0)) {
            if self.undeclared_script_keys == UndeclaredScriptKeys::Always
                && self.catalog.family_of(key).is_none()
            {
                verdict.findings.push(undeclared(key));
            }
            verdict.later.push(key);
        }
    }
}

fn undeclared(key: &[u8]) -> Finding {
    let message = "does not belong to a declared family".to_owned();
    let violation = Violation { breach: Breach::UndeclaredKey, message };
    Finding { key: key.to_vec(), family: None, violation }
}

/// A key of a command that is too long to be held back until all of it has arrived.
fn too_long() -> Finding {
    let message = format!(
        "has keys after its first {MAX_JUDGED_BYTES} bytes, which were not checked; split the command"
    );
    let violation = Violation { breach: Breach::Unreadable, message };
    Finding { key: b"the command".to_vec(), family: None, violation }
}

fn expiry(ttl: NewTtl) -> Expiry {
    match ttl {
        NewTtl::Kept | NewTtl::Removed => Expiry::Unknown,
        NewTtl::Millis(millis) => Expiry::InMillis(millis),
    }
}

/// Checks a whole value. Of a value that has not arrived, only the length is known.
fn judge_text(value: &Value, schema: &Schema, request: &Request<'_>, at: usize) -> Option<Violation> {
    let mismatch = match (request.word(at), request.cut) {
        (Some(bytes), _) => value.fits(bytes, schema).err()?.to_string(),
        (None, Some(Some(length))) if at == request.words.len() => {
            let max = match value {
                Value::Any | Value::HyperLogLog => return None,
                // Numbers, words, times and ids are short.
                value => value.max_bytes().unwrap_or(0),
            };
            if length as u64 <= max {
                return None;
            }
            format!("has {length} bytes, more than {max}")
        }
        _ => return None,
    };
    Some(Violation { breach: Breach::MisfitValue, message: mismatch })
}

/// Whether a key of this family must be read after the command.
fn needs_look(write: &Write, ttl: NewTtl, family: &Family) -> bool {
    let may_lack_ttl = match ttl {
        NewTtl::Kept => write.creation == Creation::Creates,
        NewTtl::Removed => true,
        NewTtl::Millis(_) => false,
    };
    if may_lack_ttl && family.ttl.rule.required() {
        return true;
    }
    if write.creation == Creation::ExistingOnly {
        return false;
    }
    let may_misfit = match write.values {
        Values::Unknown => is_constrained(&family.content),
        Values::WholeNumber => {
            !matches!(&family.content, Content::String(value) if value.fits_every_whole_number())
        }
        _ => false,
    };
    let unknown = write.kind.is_none() || may_misfit;
    let grows = family.max_len.is_some() && family.kind() != KeyType::String;
    unknown || grows || has_required_fields(&family.content)
}

fn has_required_fields(content: &Content) -> bool {
    let Content::Hash(fields) = content else { return false };
    fields
        .iter()
        .any(|field| field.presence == Presence::Required && matches!(field.name, FieldName::Exact(_)))
}

/// Whether the family says anything about its values.
fn is_constrained(content: &Content) -> bool {
    match content {
        Content::String(value) | Content::List(value) | Content::Set(value) => *value != Value::Any,
        Content::Zset { member, score } => *member != Value::Any || *score != Value::Any,
        Content::Hash(fields) | Content::Stream(fields) => !fields.is_empty(),
        Content::Module(_) => false,
    }
}

/// The values in a command that adds to a collection.
fn sample(values: Values, request: &Request<'_>) -> Sample {
    let owned = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
    match values {
        Values::Unknown | Values::WholeNumber | Values::Text(_) | Values::TextAfterKey => Sample::Unread,
        Values::Items(from) => Sample::Items(owned(request.from(from))),
        Values::Item(at) => Sample::Items(owned(request.from(at).get(..1).unwrap_or_default())),
        Values::Fields => Sample::Hash { fields: pairs(request.from(2)), whole: false },
        Values::Scored => scored(request.from(2)),
        // An entry that has not arrived as a whole could seem to lack fields.
        Values::Entry if request.cut.is_some() => Sample::Unread,
        Values::Entry => Sample::Entries(vec![pairs(entry_fields(request.from(2)))]),
    }
}

fn pairs(words: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
    words.chunks_exact(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec())).collect()
}

/// The members and scores of `ZADD`. An increment is not a score.
fn scored(words: &[&[u8]]) -> Sample {
    let is_option =
        |word: &&&[u8]| ["nx", "xx", "gt", "lt", "ch", "incr"].iter().any(|option| is_word(word, option));
    let options = words.iter().take_while(is_option).count();
    if words[..options].iter().any(|word| is_word(word, "incr")) {
        return Sample::Unread;
    }
    let score = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
    let pairs = words[options..].chunks_exact(2);
    Sample::Scored(pairs.filter_map(|pair| Some((pair[1].to_vec(), score(pair[0])?))).collect())
}

/// The fields and values after the options and the id of `XADD`.
fn entry_fields<'a>(words: &'a [&'a [u8]]) -> &'a [&'a [u8]] {
    let mut rest = words;
    while let [option, later @ ..] = rest {
        let lower: Cow<'_, str> = String::from_utf8_lossy(option);
        rest = match lower.to_ascii_lowercase().as_str() {
            "nomkstream" | "keepref" | "delref" | "acked" => later,
            "maxlen" | "minid" => match later {
                [sign, _, later @ ..] if matches!(*sign, b"=" | b"~") => later,
                [_, later @ ..] => later,
                [] => later,
            },
            "limit" => later.get(1..).unwrap_or_default(),
            _ => return later,
        };
    }
    rest
}

pub(crate) fn is_word(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// All keys of a command, and of all commands of a transaction, must be in one slot.
fn judge_slots<'a>(keys: Keys, request: &Request<'a>, session: &mut Session, verdict: &mut Verdict<'a>) {
    let mut slot = session.transaction_slot();
    for key in keys.of(request.words) {
        let this = key_slot(key);
        if slot.is_some_and(|slot| slot != this) {
            let scope = if session.in_transaction() { "transaction" } else { "command" };
            let message = format!("is in slot {this}, unlike the other keys of this {scope}");
            let violation = Violation { breach: Breach::CrossSlot, message };
            verdict.findings.push(Finding { key: key.to_vec(), family: None, violation });
            return;
        }
        slot = Some(this);
    }
    session.set_transaction_slot(slot);
}
