//! The report as HTML: a part of a console page, or a self-contained file.

use askama::Template;
use hob_database::UnixMs;
use hob_web::components::{Quantity, Tone, Unit};
use hob_web::{STYLESHEET, Time};

use super::Report;
use crate::results::charts::Charts;

/// The tables and charts of a report.
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
    /// Rendered HTML.
    body: String,
}

impl Report {
    pub(crate) fn body(&self) -> ReportBody<'_> {
        ReportBody { report: self, charts: Charts::new(self) }
    }

    /// A self-contained HTML file.
    #[must_use]
    pub fn html(&self) -> String {
        let body = self.body().render().unwrap_or_default();
        let started = Time(UnixMs(self.started_at));
        ReportFile { report: self, started, style: STYLESHEET, body }.render().unwrap_or_default()
    }
}

/// No latency is exactly 0: without a request, it is a dash.
fn ms(ms: &f64) -> Quantity {
    Unit::Millis.of(if *ms == 0.0 { f64::NAN } else { *ms })
}

fn per_second(rate: &f64) -> Quantity {
    Unit::PerSecond.of(*rate)
}
