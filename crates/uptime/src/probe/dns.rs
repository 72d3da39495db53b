//! DNS: looks up a record of a name, without a cache.

use std::time::Instant;

use hickory_resolver::proto::rr::{Name, RData, RecordType as DnsRecordType};

use super::Probe;
use super::resolver::{failure, forbidden, resolver_for};
use super::trace::{Stage, Trace};
use crate::monitor::check::{DnsCheck, Failure, FailureClass, RecordType};

/// Answers that a failure message lists.
const MAX_SHOWN: usize = 4;

impl Probe {
    pub(super) async fn dns(&self, check: &DnsCheck, trace: &mut Trace) -> Result<(), Failure> {
        trace.stage = Stage::Name;
        let (own, settings);
        let resolver = match check.server {
            Some(server) => {
                self.settings().limits.outbound.check(server.ip()).map_err(forbidden)?;
                trace.address = Some(server);
                own = resolver_for(server)?;
                &own
            }
            None => {
                settings = self.settings();
                settings.resolver.uncached()?
            }
        };
        let mut name = Name::from_utf8(&check.name)
            .map_err(|_| Failure::new(FailureClass::Misconfigured, "not a valid domain name"))?;
        // Absolute: the search list of the system could find another name.
        name.set_fqdn(true);
        let started = Instant::now();
        let found =
            resolver.lookup(name, dns_record_type(check.record)).await.map_err(|error| failure(&error))?;
        trace.phases.dns = Some(started.elapsed());
        let answers: Vec<String> =
            found.answers().iter().filter_map(|record| show(&record.data, check.record)).collect();
        compare(check, &answers)
    }
}

fn compare(check: &DnsCheck, answers: &[String]) -> Result<(), Failure> {
    if answers.is_empty() {
        return Err(Failure::new(FailureClass::Name, "the name has no such record"));
    }
    let same = |expected: &str, answer: &str| match check.record {
        RecordType::Txt => expected == answer,
        _ => expected.trim_end_matches('.').eq_ignore_ascii_case(answer),
    };
    let is_answered = |expected: &String| answers.iter().any(|answer| same(expected, answer));
    match check.expected.iter().find(|expected| !is_answered(expected)) {
        None => Ok(()),
        Some(missing) => {
            let shown = answers[..answers.len().min(MAX_SHOWN)].join(", ");
            Err(Failure::new(FailureClass::Assertion, format!("{missing} is not among {shown}")))
        }
    }
}

fn dns_record_type(record: RecordType) -> DnsRecordType {
    match record {
        RecordType::A => DnsRecordType::A,
        RecordType::Aaaa => DnsRecordType::AAAA,
        RecordType::Cname => DnsRecordType::CNAME,
        RecordType::Mx => DnsRecordType::MX,
        RecordType::Ns => DnsRecordType::NS,
        RecordType::Txt => DnsRecordType::TXT,
    }
}

/// A record of the expected type as users write it: names without the last dot, `10 mail.example` for a mail server, the
/// strings of a text as one.
fn show(data: &RData, record: RecordType) -> Option<String> {
    let plain = |name: &Name| name.to_utf8().trim_end_matches('.').to_ascii_lowercase();
    match (data, record) {
        (RData::A(address), RecordType::A) => Some(address.to_string()),
        (RData::AAAA(address), RecordType::Aaaa) => Some(address.to_string()),
        (RData::CNAME(name), RecordType::Cname) => Some(plain(&name.0)),
        (RData::NS(name), RecordType::Ns) => Some(plain(&name.0)),
        (RData::MX(mail), RecordType::Mx) => Some(format!("{} {}", mail.preference, plain(&mail.exchange))),
        (RData::TXT(text), RecordType::Txt) => {
            let bytes: Vec<u8> = text.txt_data.iter().flat_map(|part| part.iter().copied()).collect();
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
        _ => None,
    }
}
