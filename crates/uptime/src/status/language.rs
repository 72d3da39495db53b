//! The language and the time zone of a reader.

use hob_database::UnixMs;
use http::HeaderMap;
use http::header::ACCEPT_LANGUAGE;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

pub(crate) use super::words::Words;
use super::words::{ENGLISH, GERMAN};

/// The languages of status pages and e-mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    English,
    German,
}

hob_units::names!(Language { English = "en", German = "de" });

/// A time zone by its IANA name.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    pub(crate) name: String,
    zone: TimeZone,
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

impl Language {
    /// The language that the reader prefers among those that there are; English if there is none.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let header = headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut best = (0.0, Self::English);
        for part in header.split(',').take(32) {
            let mut pieces = part.split(';').map(str::trim);
            let primary = pieces.next().unwrap_or_default().split('-').next().unwrap_or_default();
            let weight =
                pieces.find_map(|piece| piece.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
            if let Ok(language) = primary.to_ascii_lowercase().parse::<Self>()
                && weight > best.0
            {
                best = (weight, language);
            }
        }
        best.1
    }

    pub(crate) fn words(self) -> &'static Words {
        match self {
            Self::English => &ENGLISH,
            Self::German => &GERMAN,
        }
    }

    /// `17 November 2026`
    pub(crate) fn date(self, date: Date) -> String {
        self.written(date, self.words().months)
    }

    /// `17 Nov 2026`
    pub(crate) fn short_date(self, date: Date) -> String {
        self.written(date, self.words().short_months)
    }

    fn written(self, date: Date, months: [&str; 12]) -> String {
        let month = usize::try_from(date.month()).ok().and_then(|month| months.get(month.wrapping_sub(1)));
        let month = month.copied().unwrap_or_default();
        match self {
            Self::English => format!("{} {month} {}", date.day(), date.year()),
            Self::German => format!("{}. {month} {}", date.day(), date.year()),
        }
    }

    /// `17 Nov 2026, 14:05`
    pub(crate) fn moment(self, at: UnixMs, zone: &Zone) -> String {
        format!("{}, {}", self.short_date(zone.date(at)), zone.clock(at))
    }

    /// A percentage; 100 % is shown only if there was no downtime.
    pub(crate) fn percent(self, percent: f64) -> String {
        let text = crate::pages::format_percent(percent);
        match self {
            Self::English => text,
            Self::German => text.replace('.', ","),
        }
    }

    /// `3 min`, `2 h 5 min`, `4 d 1 h`; at least one minute.
    pub(crate) fn duration(self, ms: i64) -> String {
        let day = self.words().day_unit;
        let ms = ms.max(MINUTE_MS);
        match ms {
            ..HOUR_MS => format!("{} min", ms / MINUTE_MS),
            HOUR_MS..DAY_MS => match ms % HOUR_MS / MINUTE_MS {
                0 => format!("{} h", ms / HOUR_MS),
                minutes => format!("{} h {minutes} min", ms / HOUR_MS),
            },
            _ => match ms % DAY_MS / HOUR_MS {
                0 => format!("{} {day}", ms / DAY_MS),
                hours => format!("{} {day} {hours} h", ms / DAY_MS),
            },
        }
    }
}

impl Zone {
    pub(crate) fn utc() -> Self {
        Self { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    /// The zone with this name, such as `Europe/Berlin`; `None` if this machine does not know it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
            return None;
        }
        Some(Self { name: name.to_owned(), zone: TimeZone::get(name).ok()? })
    }

    pub(crate) fn date(&self, at: UnixMs) -> Date {
        timestamp(at).to_zoned(self.zone.clone()).date()
    }

    /// `14:05`
    fn clock(&self, at: UnixMs) -> String {
        timestamp(at).to_zoned(self.zone.clone()).strftime("%H:%M").to_string()
    }

    /// When a day begins.
    pub(crate) fn start_of(&self, date: Date) -> UnixMs {
        let zoned = date.to_zoned(self.zone.clone());
        UnixMs(zoned.map_or(0, |zoned| zoned.timestamp().as_millisecond()))
    }
}

/// ISO 8601, for machines.
pub(crate) fn iso(at: UnixMs) -> String {
    timestamp(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn timestamp(at: UnixMs) -> Timestamp {
    Timestamp::from_millisecond(at.0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: UnixMs = UnixMs(1_794_921_900_000);

    fn language(header: &str) -> Language {
        Language::of(&HeaderMap::from_iter([(ACCEPT_LANGUAGE, header.parse().unwrap())]))
    }

    #[test]
    fn preferred_language_is_chosen() {
        assert_eq!(Language::of(&HeaderMap::new()), Language::English);
        for header in ["de", "de-AT,en;q=0.9", "fr, de;q=0.8, en;q=0.7", "DE-ch"] {
            assert_eq!(language(header), Language::German, "{header}");
        }
        for header in ["", "fr", "en-GB, de;q=0.9", "de;q=0, en;q=0.1", "*", "den", "de;q=x"] {
            assert_eq!(language(header), Language::English, "{header}");
        }
    }

    #[test]
    fn times_are_written_in_the_language_and_zone() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        assert_eq!(Language::English.moment(AT, &Zone::utc()), "17 Nov 2026, 13:25");
        assert_eq!(Language::German.moment(AT, &berlin), "17. Nov. 2026, 14:25");
        assert_eq!(Language::German.date(berlin.date(AT)), "17. November 2026");
        assert_eq!(berlin.start_of(berlin.date(AT)).0, AT.0 - (14 * 60 + 25) * 60_000);
        for name in ["", "Nowhere/City", "../../etc/passwd", "Europe/Berlin\0"] {
            assert!(Zone::named(name).is_none(), "{name}");
        }
    }

    #[test]
    fn durations_have_two_units_at_most() {
        for (minutes, text) in
            [(0, "1 min"), (3, "3 min"), (60, "1 h"), (125, "2 h 5 min"), (1_500, "1 d 1 h")]
        {
            assert_eq!(Language::English.duration(minutes * MINUTE_MS), text);
        }
        assert_eq!(Language::German.duration(2 * DAY_MS), "2 T");
        assert_eq!(Language::German.percent(99.5), "99,500 %");
    }
}
