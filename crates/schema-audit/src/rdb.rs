//! Audits an RDB file, which Redis and Valkey write with `SAVE`, `BGSAVE` and `redis-cli --rdb`, without a server.
//!
//! Reads the versions 6 to 12 of the format: Redis 3.2 to 7.4, and Valkey 8.

mod input;
mod lzf;
mod packed;
mod values;

use std::io::{self, Read};
use std::time::Instant;

use hob_schema::Catalog;
use hob_schema::check::{Expiry, Facts};

use crate::audit::findings::Findings;
use crate::audit::probe::{MemoryUse, Prober};
use crate::audit::report::AuditReport;
use crate::audit::sampling::Selection;
use input::Input;

/// The newest version of the format that is read.
const MAX_VERSION: u32 = 12;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RdbError {
    #[error("cannot read the RDB file: {0}")]
    Read(#[source] io::Error),
    #[error("not an RDB file: it does not start with REDIS and a version")]
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
    let mut elsewhere = 0_u64;
    while let Some(entry) = file.next()? {
        if entry.database != database {
            elsewhere += 1;
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
    if elsewhere > 0 {
        report.notes.push(format!("{elsewhere} keys in other databases were not checked"));
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

struct File<R> {
    input: Input<R>,
    database: u64,
    /// When the file was written, if it says so.
    written_ms: Option<u64>,
}

impl<R: Read> File<R> {
    fn open(reader: R) -> Result<File<R>, RdbError> {
        let mut input = Input::new(reader);
        let head: [u8; 9] = input.bytes().map_err(|_| RdbError::NotRdb)?;
        let version =
            head.strip_prefix(b"REDIS").and_then(|version| std::str::from_utf8(version).ok()?.parse().ok());
        match version {
            None => Err(RdbError::NotRdb),
            Some(version) if version > MAX_VERSION => Err(RdbError::Version(version)),
            Some(_) => Ok(File { input, database: 0, written_ms: None }),
        }
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
        let value = self.input.value(kind)?;
        let left_ms = expires_ms.map(|expires| expires.checked_sub(self.written_ms.unwrap_or(0)));
        let expiry = match left_ms {
            None => Expiry::Never,
            // Without the time of the file, it is only known that there is a TTL.
            Some(Some(left)) if self.written_ms.is_some() => Expiry::InMillis(left),
            Some(_) => Expiry::Unknown,
        };
        let facts = Facts { kind: Some(value.kind), expiry, len: value.len, sample: value.sample };
        let expired = left_ms == Some(None);
        Ok(Entry { key, database: self.database, facts, expired, bytes: self.input.offset() - start })
    }
}
