//! Parses the latencies in the output of each tool.

use std::time::Duration;

use anyhow::Result;

/// The percentiles that a tool reports; wrk, ab and hey stop at the 99th.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) p99: Option<Duration>,
    pub(crate) p999: Option<Duration>,
}

impl Reported {
    /// `99%  1.23ms`; a number without a unit is in milliseconds.
    pub(crate) fn from_lines(text: &str) -> Self {
        let find = |share| {
            let mut words = text.lines().map(str::split_whitespace);
            duration(words.find_map(|mut words| (words.next() == Some(share)).then(|| words.next()))??)
        };
        Self { p99: find("99%"), p999: find("99.9%") }
    }

    /// `99% in 0.0021 secs`, or `99%% in …`.
    pub(crate) fn from_seconds(text: &str) -> Self {
        let line = text.lines().map(str::trim).find(|line| line.starts_with("99%"));
        let seconds = line.and_then(|line| line.split_whitespace().nth(2)?.parse().ok());
        Self { p99: seconds.map(Duration::from_secs_f64), p999: None }
    }

    /// `{"latencyPercentiles": {"p99": 0.0021, "p99.9": …}}`, in seconds.
    pub(crate) fn from_json(text: &str) -> Result<Self> {
        let report: serde_json::Value = serde_json::from_str(text)?;
        let find = |name: &str| report["latencyPercentiles"][name].as_f64().map(Duration::from_secs_f64);
        Ok(Self { p99: find("p99"), p999: find("p99.9") })
    }

    /// A column for each percentile, in milliseconds; the last row is of all requests.
    pub(crate) fn from_csv(text: &str) -> Self {
        let mut lines = text.lines();
        let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let row: Vec<&str> = lines.next_back().unwrap_or_default().split(',').collect();
        let find = |name: &str| duration(row.get(head.iter().position(|column| *column == name)?)?);
        Self { p99: find("99%"), p999: find("99.9%") }
    }
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) =
        text.split_at(text.find(|sign: char| sign.is_ascii_alphabetic()).unwrap_or(text.len()));
    let seconds = match unit {
        "us" => 1e-6,
        "" | "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Some(Duration::from_secs_f64(number.parse::<f64>().ok()? * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_every_tool_is_parsed() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        for (reported, p99, p999) in [
            (Reported::from_lines("  50%  400.00us\n  99%    1.95s\n"), ms(1950), None),
            (Reported::from_lines("99% 812us\n99.9% 100100us"), us(812), Some(us(100_100))),
            (Reported::from_lines("  98%      2\n  99%      3\n 100%      7 (longest request)"), ms(3), None),
            (Reported::from_seconds("  95%% in 0.0010 secs\n  99%% in 0.0020 secs\n"), ms(2), None),
            (
                Reported::from_json(r#"{"latencyPercentiles": {"p99": 0.002, "p99.9": 0.1}}"#).unwrap(),
                ms(2),
                Some(ms(100)),
            ),
            (Reported::from_csv("Type,99%,99.9%\nGET,1,2\n,2,110"), ms(2), Some(ms(110))),
        ] {
            assert_eq!(reported, Reported { p99: Some(p99), p999 });
        }
    }
}
