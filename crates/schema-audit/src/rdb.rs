//! Audits an RDB file, which Redis and Valkey write with `SAVE`, `BGSAVE` and `redis-cli --rdb`, without a server.
//!
//! Reads the versions 6 to 12 of the format (Redis 3.2 to 8.0, and Valkey 8), and version 80 of Valkey 9.

mod input;
mod lzf;
mod packed;
mod values;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::time::Instant;

use hob_schema::Catalog;
use hob_schema::check::{Expiry, Facts, StreamFacts};

use crate::audit::findings::Findings;
use crate::audit::probe::{MemoryUse, Prober};
use crate::audit::report::{AuditReport, key_count};
use crate::audit::sampling::Selection;
use input::Input;

/// The newest version of the format that is read, and that of Valkey, which has its own versions since Valkey 9.
const MAX_VERSION: u32 = 12;
const VALKEY_VERSION: u32 = 80;
/// A report names at most this many other databases with keys.
const MAX_NAMED: usize = 16;
/// The type of a hash whose fields may have TTLs. Redis has another type with this number.
const VALKEY_HASH: u8 = 22;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RdbError {
    #[error("cannot read the RDB file: {0}")]
    Read(#[source] io::Error),
    #[error("not an RDB file: it does not start with REDIS or VALKEY and a version")]
    NotRdb,
    #[error("the RDB file has the version {0}; versions up to {MAX_VERSION} can be read")]
    Version(u32),
    #[error("the RDB file has a value of the unknown type {kind} before byte {offset}")]
    UnknownType { offset: u64, kind: u8 },
    #[error("the RDB file is damaged before byte {offset}: {reason}")]
    Malformed { offset: u64, reason: &'static str },
}

/// Audits the keys of one database in an RDB file. The sizes in the report are those in the file, not in memory.
pub fn audit_rdb(reader: impl Read, catalog: &Catalog, database: u64) -> Result<AuditReport, RdbError> {
    let started = Instant::now();
    let mut findings = Findings::new(catalog, Selection::All);
    let prober = Prober::new(catalog, findings.identified(), MemoryUse::Unread, Selection::All);
    let mut file = File::open(reader)?;
    let mut elsewhere: BTreeMap<u64, u64> = BTreeMap::new();
    while let Some(entry) = file.next()? {
        if entry.database != database {
            *elsewhere.entry(entry.database).or_default() += 1;
            continue;
        }
        let mut probed = prober.recognize(catalog, entry.key);
        probed.bytes = Some(entry.bytes);
        probed.facts = entry.facts;
        probed.gone = entry.expired;
        findings.add(&probed);
    }
    let mut report = findings.report();
    report.notes.push("sizes are those in the RDB file, not in memory".to_owned());
    if !elsewhere.is_empty() {
        let one = |(number, keys): (&u64, &u64)| format!("database {number} has {}", key_count(*keys));
        let named: Vec<String> = elsewhere.iter().take(MAX_NAMED).map(one).collect();
        let more = if elsewhere.len() > MAX_NAMED { ", …" } else { "" };
        report.notes.push(format!(
            "keys in other databases were not checked: {}{more}; choose one with --database",
            named.join(", ")
        ));
    }
    report.elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(report)
}

/// One key of a file.
struct Entry {
    key: Vec<u8>,
    database: u64,
    facts: Facts,
    expired: bool,
    bytes: u64,
}

/// Whose numbers the types of values have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Redis,
    Valkey,
}

struct File<R> {
    input: Input<R>,
    format: Format,
    database: u64,
    /// When the file was written, if it says so.
    written_ms: Option<u64>,
}

impl<R: Read> File<R> {
    fn open(reader: R) -> Result<File<R>, RdbError> {
        let mut input = Input::new(reader);
        let head: [u8; 9] = input.bytes().map_err(|_| RdbError::NotRdb)?;
        let version = |magic: &[u8]| -> Option<u32> {
            std::str::from_utf8(head.strip_prefix(magic)?).ok()?.parse().ok()
        };
        let format = match (version(b"REDIS"), version(b"VALKEY")) {
            (Some(version), _) if version <= MAX_VERSION => Format::Redis,
            (_, Some(VALKEY_VERSION)) => Format::Valkey,
            (Some(version), _) | (_, Some(version)) => return Err(RdbError::Version(version)),
            (None, None) => return Err(RdbError::NotRdb),
        };
        Ok(File { input, format, database: 0, written_ms: None })
    }

    /// The next key; `None` at the end of the file.
    fn next(&mut self) -> Result<Option<Entry>, RdbError> {
        let input = &mut self.input;
        let mut expires_ms = None;
        loop {
            match input.byte()? {
                255 => return Ok(None),
                254 => self.database = input.length()?,
                253 => expires_ms = Some(u64::from(u32::from_le_bytes(input.bytes()?)) * 1_000),
                252 => expires_ms = Some(u64::from_le_bytes(input.bytes()?)),
                // The number of keys, and of those with a TTL.
                251 => {
                    input.length()?;
                    input.length()?;
                }
                250 => {
                    let (name, text) = (input.string()?, input.string()?);
                    if name == b"ctime" {
                        let seconds = String::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
                        self.written_ms = seconds.map(|seconds| seconds.saturating_mul(1_000));
                    }
                }
                // How often or when a key was last used.
                249 => drop(input.byte()?),
                248 => drop(input.length()?),
                // Data of a module that belongs to no key.
                247 => {
                    input.length()?;
                    input.skip_module()?;
                }
                // A library of functions.
                245 => input.skip_string()?,
                // The keys of a Cluster slot, and how many of them expire.
                244 => {
                    for _ in 0..3 {
                        input.length()?;
                    }
                }
                kind => return self.entry(kind, expires_ms).map(Some),
            }
        }
    }

    fn entry(&mut self, kind: u8, expires_ms: Option<u64>) -> Result<Entry, RdbError> {
        let start = self.input.offset();
        let key = self.input.string()?;
        let value = match (self.format, kind) {
            (Format::Valkey, VALKEY_HASH) => self.input.valkey_hash()?,
            _ => self.input.value(kind)?,
        };
        // The time of the file has no milliseconds, so it may be up to a second later than it says. Without the time, it is
        // only known whether there is a TTL.
        let latest_ms = self.written_ms.map(|written| written.saturating_add(999));
        let expiry = |expires: Option<u64>| match (expires, latest_ms) {
            (None, _) => Expiry::Never,
            (Some(expires), Some(latest)) => Expiry::InMillis(expires.saturating_sub(latest)),
            (Some(_), None) => Expiry::Unknown,
        };
        let age = |id_ms: u64| Some(self.written_ms?.saturating_sub(id_ms));
        let facts = Facts {
            kind: Some(value.kind),
            expiry: expiry(expires_ms),
            len: value.len,
            sample: value.sample,
            stream: StreamFacts { groups: value.groups, oldest_ms: value.oldest_id_ms.and_then(age) },
            field_expiry: value
                .field_expires_ms
                .into_iter()
                .map(|(name, expires)| (name, expiry(expires)))
                .collect(),
        };
        let expired = expires_ms.is_some_and(|expires| expires < self.written_ms.unwrap_or(0));
        Ok(Entry { key, database: self.database, facts, expired, bytes: self.input.offset() - start })
    }
}
