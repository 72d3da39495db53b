//! Compares outages of targets, as the targets know them, with incidents and alerts.

use jiff::{SignedDuration, Timestamp};

/// How far the times of an incident may be from those of the outage: an interval with its timeout, and time for a busy
/// machine. A clock that is 30 s wrong is found.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(10);

/// A time in which a target answered with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    pub(super) from: Timestamp,
    pub(super) to: Option<Timestamp>,
    /// When the target answered with an error.
    pub(super) failures: Vec<Timestamp>,
    /// When the target answered without an error, after it.
    pub(super) successes: Vec<Timestamp>,
}

/// An incident as the API reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Incident {
    pub(super) id: String,
    pub(super) opened: Timestamp,
    pub(super) resolved: Option<Timestamp>,
}

/// An alert that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alert {
    /// The idempotency key.
    pub(super) key: String,
    pub(super) kind: String,
    pub(super) incident: String,
}

/// Each outage is one incident with the right times, one alert `opened` and, if it is over, one alert `resolved` after it.
pub(super) fn compare(outages: &[Outage], incidents: &[Incident], alerts: &[Alert]) -> Result<(), String> {
    if outages.len() != incidents.len() {
        return Err(format!("{} outages, but {} incidents: {incidents:?}", outages.len(), incidents.len()));
    }
    for (outage, incident) in outages.iter().zip(incidents) {
        compare_times(outage, incident).map_err(|what| format!("{what}: {outage:?}, {incident:?}"))?;
        compare_alerts(incident, alerts)?;
    }
    Ok(())
}

fn compare_times(outage: &Outage, incident: &Incident) -> Result<(), &'static str> {
    let near = |times: &[Timestamp], time: Timestamp| {
        times.iter().any(|known| known.duration_since(time).abs() <= TOLERANCE)
    };
    if incident.opened < outage.from - TOLERANCE || !near(&outage.failures, incident.opened) {
        return Err("the incident was not opened with a failed check");
    }
    match (outage.to, incident.resolved) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err("the incident is resolved, but the target still fails"),
        (Some(_), None) => Err("the incident is open, but the target has recovered"),
        (Some(to), Some(resolved)) if resolved < to - TOLERANCE => Err("the incident was resolved too early"),
        (Some(_), Some(resolved)) if near(&outage.successes, resolved) => Ok(()),
        (Some(_), Some(_)) => Err("the incident was not resolved with a successful check"),
    }
}

fn compare_alerts(incident: &Incident, alerts: &[Alert]) -> Result<(), String> {
    let of_kind = |kind: &str| {
        let first = alerts.iter().position(|alert| alert.incident == incident.id && alert.kind == kind);
        let mut keys: Vec<&str> = alerts
            .iter()
            .filter(|alert| alert.incident == incident.id && alert.kind == kind)
            .map(|alert| alert.key.as_str())
            .collect();
        keys.sort_unstable();
        keys.dedup();
        (first, keys.len())
    };
    let ((opened, opened_keys), (resolved, resolved_keys)) = (of_kind("opened"), of_kind("resolved"));
    let expected = usize::from(incident.resolved.is_some());
    if (opened_keys, resolved_keys) != (1, expected) {
        return Err(format!(
            "{opened_keys} alerts for the begin and {resolved_keys} for the end of {incident:?}, instead of 1 and {expected}"
        ));
    }
    if resolved.is_some() && resolved < opened {
        return Err(format!("the end of {incident:?} was reported before its begin"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Alert, Incident, Outage, compare};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn outage() -> Outage {
        Outage {
            from: at(0),
            to: Some(at(60)),
            failures: (2..60).step_by(2).map(at).collect(),
            successes: vec![at(61)],
        }
    }

    fn incident(opened: i64, resolved: Option<i64>) -> Incident {
        Incident { id: "i".to_owned(), opened: at(opened), resolved: resolved.map(at) }
    }

    fn alert(key: &str, kind: &str) -> Alert {
        Alert { key: key.to_owned(), kind: kind.to_owned(), incident: "i".to_owned() }
    }

    fn alerts() -> Vec<Alert> {
        // The first arrives twice, with the same key.
        vec![alert("1", "opened"), alert("1", "opened"), alert("2", "resolved")]
    }

    #[test]
    fn right_incident_is_accepted() {
        assert_eq!(compare(&[outage()], &[incident(2, Some(61))], &alerts()), Ok(()));
        assert_eq!(compare(&[], &[], &[]), Ok(()));
    }

    #[test]
    fn lost_and_doubled_incidents_are_found() {
        assert!(compare(&[outage()], &[], &[]).unwrap_err().contains("1 outages, but 0 incidents"));
        let twice = [incident(2, Some(61)), incident(2, Some(61))];
        assert!(compare(&[outage()], &twice, &alerts()).is_err());
    }

    #[test]
    fn wrong_times_are_found() {
        for (opened, resolved, what) in [
            (-28, Some(61), "not opened with a failed check"),
            (75, Some(61), "not opened with a failed check"),
            (2, Some(31), "too early"),
            (2, Some(91), "not resolved with a successful check"),
            (2, None, "is open, but"),
        ] {
            let error = compare(&[outage()], &[incident(opened, resolved)], &alerts()).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
        let lasting = Outage { to: None, ..outage() };
        assert!(
            compare(&[lasting], &[incident(2, Some(61))], &alerts()).unwrap_err().contains("still fails")
        );
    }

    #[test]
    fn lost_doubled_and_reordered_alerts_are_found() {
        let [opened, again, resolved] = [alert("1", "opened"), alert("3", "opened"), alert("2", "resolved")];
        for (alerts, what) in [
            (vec![opened.clone()], "1 alerts for the begin and 0 for the end"),
            (vec![opened.clone(), again, resolved.clone()], "2 alerts for the begin"),
            (vec![resolved, opened], "before its begin"),
        ] {
            let error = compare(&[outage()], &[incident(2, Some(61))], &alerts).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
