//! How incidents are read.

use std::fmt;
use std::str::FromStr;

use hob_database::{Keyset, Kind, Page, PageRequest, Query, Read, UnixMs, column, from_row, sql};

use crate::error::Result;
use crate::keys::MonitorId;

const NEWEST_FIRST: Keyset = Keyset::descending(&[("opened_at", Kind::Int), ("id", Kind::Text)]);

/// An outage of one monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    pub id: String,
    pub monitor_id: MonitorId,
    pub opened_fence: u64,
    /// The first failed try.
    pub opened_at: UnixMs,
    /// When the retries were used up.
    pub confirmed_at: UnixMs,
    pub class: String,
    pub message: String,
    pub failures: u32,
    /// It began in a maintenance window, which does not count as downtime.
    pub maintenance: bool,
    pub told_at: Option<UnixMs>,
    pub reminders: u32,
    pub reminded_at: Option<UnixMs>,
    pub acknowledged_at: Option<UnixMs>,
    pub acknowledged_by: Option<String>,
    pub resolved_at: Option<UnixMs>,
    pub resolution: Option<Resolution>,
}

/// Why an incident is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    Recovered,
    /// Nobody looks any more.
    Paused,
}

/// What somebody wrote about an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub written_at: UnixMs,
    pub author: String,
    pub text: String,
}

/// Which incidents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    #[default]
    All,
    Open,
    Of(MonitorId),
}

column!(Resolution as text);
from_row!(Incident {
    id,
    monitor_id,
    opened_fence,
    opened_at,
    confirmed_at,
    class,
    message,
    failures,
    maintenance,
    told_at,
    reminders,
    reminded_at,
    acknowledged_at,
    acknowledged_by,
    resolved_at,
    resolution,
});
from_row!(Note { written_at, author, text });

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, monitor_id, opened_fence, opened_at, confirmed_at, class, message, failures, maintenance, told_at,
                    reminders, reminded_at, acknowledged_at, acknowledged_by, resolved_at, resolution
             FROM uptime_incident ",
            $rest
        )
    };
}

pub async fn by_id(on: &impl Read, id: &str) -> Result<Option<Incident>> {
    Ok(on.optional(sql(select!("WHERE id = $1")).bind(id)).await?)
}

pub(super) async fn open_of(on: &impl Read, monitor: &MonitorId) -> Result<Option<Incident>> {
    Ok(on.optional(sql(select!("WHERE monitor_id = $1 AND resolved_at IS NULL")).bind(monitor)).await?)
}

/// Every open incident; there is at most one for each monitor.
pub async fn open(on: &impl Read) -> Result<Vec<Incident>> {
    let mut all = Vec::new();
    let mut request = PageRequest::first(PageRequest::MOST);
    loop {
        let page = on.page(sql(select!("WHERE resolved_at IS NULL")), &NEWEST_FIRST, &request).await?;
        all.extend(page.rows);
        match page.next {
            Some(cursor) => request = request.after(cursor),
            None => return Ok(all),
        }
    }
}

/// Incidents by pages, the newest first.
pub async fn newest(on: &impl Read, filter: &Filter, request: &PageRequest) -> Result<Page<Incident>> {
    let query: Query<Incident> = match filter {
        Filter::All => sql(select!("WHERE TRUE")),
        Filter::Open => sql(select!("WHERE resolved_at IS NULL")),
        Filter::Of(monitor) => sql(select!("WHERE monitor_id = $1")).bind(monitor),
    };
    Ok(on.page(query, &NEWEST_FIRST, request).await?)
}

/// The newest incidents of some monitors that touch the time since `from`, a bounded number.
pub async fn overlapping(on: &impl Read, monitors: &[MonitorId], from: UnixMs) -> Result<Vec<Incident>> {
    let query = sql(select!(
        "WHERE (resolved_at IS NULL OR resolved_at > $1) AND monitor_id IN ($2...) ORDER BY opened_at DESC LIMIT 5000"
    ));
    Ok(on.all(query.bind(from).bind_list(monitors)).await?)
}

pub async fn notes(on: &impl Read, incident: &str) -> Result<Vec<Note>> {
    let query = sql(
        "SELECT written_at, author, text FROM uptime_note WHERE incident_id = $1 ORDER BY written_at, id",
    );
    Ok(on.all(query.bind(incident)).await?)
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recovered => "recovered",
            Self::Paused => "paused",
        })
    }
}

impl FromStr for Resolution {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "recovered" => Ok(Self::Recovered),
            "paused" => Ok(Self::Paused),
            _ => Err(()),
        }
    }
}
