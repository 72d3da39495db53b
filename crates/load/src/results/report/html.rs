//! The report as a page: a part of the console, or one file that needs nothing else.

use askama::Template;
use hob_database::UnixMs;
use hob_web::look::{Quantity, Tone, Unit};
use hob_web::{STYLESHEET, Time};

use super::Report;
use crate::results::charts::Charts;

/// The numbers and pictures of a report.
#[derive(Template)]
#[template(path = "report_body.html")]
pub(crate) struct ReportBody<'a> {
    report: &'a Report,
    charts: Charts,
}

#[derive(Template)]
#[template(path = "report_file.html")]
struct ReportFile<'a> {
    report: &'a Report,
    started: Time,
    style: &'static str,
    /// HTML already.
    body: String,
}

impl Report {
    pub(crate) fn body(&self) -> ReportBody<'_> {
        ReportBody { report: self, charts: Charts::new(self) }
    }

    /// One file with everything in it.
    #[must_use]
    pub fn html(&self) -> String {
        let body = self.body().render().unwrap_or_default();
        let started = Time(UnixMs(self.started_at));
        ReportFile { report: self, started, style: STYLESHEET, body }.render().unwrap_or_default()
    }
}

fn ms(ms: &f64) -> Quantity {
    Unit::Millis.of(*ms)
}

fn per_second(rate: &f64) -> Quantity {
    Unit::PerSecond.of(*rate)
}
