//! The report as text for a terminal.

use std::fmt::Write as _;

use hob_load_generator::LatencySummary;

use super::Report;

const WIDTH: usize = 44;

impl Report {
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{}  ({})", self.name, self.run_type);
        let _ = writeln!(
            out,
            "  {} requests, {:.1}/s, {} failed ({:.3} %), {} in, {} out\n",
            self.requests,
            self.rate,
            self.failed,
            self.error_rate,
            bytes(self.bytes_in),
            bytes(self.bytes_out)
        );
        let _ = writeln!(
            out,
            "  {:<24}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
            "latency", "p50", "p90", "p99", "p99.9", "max", "mean"
        );
        line(&mut out, "from the intended start", &self.latency);
        line(&mut out, "from the actual start", &self.latency_actual);
        if self.failed > 0 {
            line(&mut out, "failed requests", &self.latency_failed);
        }
        if self.steps.len() > 1 {
            out.push('\n');
            for step in &self.steps {
                line(&mut out, &step.name, &step.latency);
            }
        }
        self.write_histogram(&mut out);
        self.write_results(&mut out);
        out
    }

    fn write_histogram(&self, out: &mut String) {
        let largest = self.histogram.iter().map(|bar| bar.count).max().unwrap_or(0).max(1);
        out.push('\n');
        for bar in &self.histogram {
            // Rounded up, so that every count is visible.
            let len = (bar.count as usize * WIDTH).div_ceil(largest as usize);
            let _ = writeln!(out, "  ≤ {:>9} {:<WIDTH$} {}", ms(bar.up_to), "█".repeat(len), bar.count);
        }
    }

    fn write_results(&self, out: &mut String) {
        for fault in self.faults.iter().take(10) {
            let _ = writeln!(out, "  {:>8} × {}: {}", fault.count, fault.step, fault.what);
        }
        for result in &self.thresholds {
            let sign = if result.met { "✓" } else { "✗" };
            let measured = if result.value.is_some() { "measured " } else { "" };
            let _ = writeln!(out, "  {sign} {} ({measured}{})", result.threshold, result.measured());
        }
        for warning in self.warnings() {
            let _ = writeln!(out, "  ! {warning}");
        }
    }
}

fn line(out: &mut String, name: &str, latency: &LatencySummary) {
    let name: String = name.chars().take(23).collect();
    let _ = write!(out, "  {name:<24}");
    for value in [latency.p50, latency.p90, latency.p99, latency.p999, latency.max, latency.mean] {
        let _ = write!(out, "{:>9}", ms(value));
    }
    out.push('\n');
}

/// Milliseconds in a unit that fits their size. No latency is exactly 0: without a request, it is a dash.
pub(crate) fn ms(ms: f64) -> String {
    match ms {
        0.0 => "–".to_owned(),
        ms if ms < 1.0 => format!("{:.0}µs", ms * 1000.0),
        ms if ms < 100.0 => format!("{ms:.2}ms"),
        ms if ms < 10_000.0 => format!("{ms:.0}ms"),
        ms => format!("{:.1}s", ms / 1000.0),
    }
}

pub(crate) fn bytes(bytes: u64) -> String {
    let (mut size, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") }
}
