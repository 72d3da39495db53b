//! RSS and Atom feeds of a status page. A feed reader resolves no relative links, so all links are absolute.

use std::fmt::Write as _;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use hob_database::UnixMs;
use hob_web::components::Escaped;
use hob_web::{BaseUrl, Problem};

use super::public::PublicStatus;
use super::reader::Reader;
use super::{add_page_headers, cache_control, readable};
use crate::incident::{Incident, Resolution};
use crate::status::language::{Words, iso};
use crate::status::{Language, Zone};
use crate::uptime::Uptime;

/// An incident or a maintenance window.
struct Entry {
    /// The same as long as it exists.
    id: String,
    title: String,
    text: String,
    link: String,
    changed_at: UnixMs,
}

pub(super) async fn rss(
    State(uptime): State<Uptime>,
    reader: Reader,
    base: BaseUrl,
) -> Result<Response, Problem> {
    let status = readable(&uptime, &reader).await?;
    let page = base.join(&status.page.path());
    let mut xml = format!(
        r#"<?xml version="1.0" encoding="utf-8"?><rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>{0}</title><link>{1}</link><description>{0}</description><language>{2}</language><atom:link rel="self" type="application/rss+xml" href="{3}"/>"#,
        Escaped(&status.page.spec.title),
        Escaped(&page),
        reader.language,
        Escaped(base.join(&format!("/status/{}/feed.rss", status.page.slug))),
    );
    for entry in entries(&status, &page, reader.language) {
        let date = jiff::Timestamp::from_millisecond(entry.changed_at.0).unwrap_or_default();
        let _ = write!(
            xml,
            r#"<item><title>{}</title><link>{}</link><guid isPermaLink="false">{}</guid><pubDate>{}</pubDate><description>{}</description></item>"#,
            Escaped(&entry.title),
            Escaped(&entry.link),
            Escaped(&entry.id),
            date.strftime("%a, %d %b %Y %H:%M:%S GMT"),
            Escaped(&entry.text)
        );
    }
    xml.push_str("</channel></rss>");
    Ok(feed(&status, xml, HeaderValue::from_static("application/rss+xml; charset=utf-8")))
}

pub(super) async fn atom(
    State(uptime): State<Uptime>,
    reader: Reader,
    base: BaseUrl,
) -> Result<Response, Problem> {
    let status = readable(&uptime, &reader).await?;
    let page = base.join(&status.page.path());
    let entries = entries(&status, &page, reader.language);
    let changed_at = entries.iter().map(|entry| entry.changed_at).max().unwrap_or(status.page.changed_at);
    let mut xml = format!(
        r#"<?xml version="1.0" encoding="utf-8"?><feed xmlns="http://www.w3.org/2005/Atom" xml:lang="{}"><title>{1}</title><id>{2}</id><link href="{2}"/><link rel="self" type="application/atom+xml" href="{3}"/><author><name>{1}</name></author><updated>{4}</updated>"#,
        reader.language,
        Escaped(&status.page.spec.title),
        Escaped(&page),
        Escaped(base.join(&format!("/status/{}/feed.atom", status.page.slug))),
        iso(changed_at),
    );
    for entry in entries {
        let _ = write!(
            xml,
            r#"<entry><title>{}</title><id>{}</id><link href="{}"/><updated>{}</updated><content type="text">{}</content></entry>"#,
            Escaped(&entry.title),
            Escaped(format!("urn:hob:{}", entry.id)),
            Escaped(&entry.link),
            iso(entry.changed_at),
            Escaped(&entry.text)
        );
    }
    xml.push_str("</feed>");
    Ok(feed(&status, xml, HeaderValue::from_static("application/atom+xml; charset=utf-8")))
}

fn feed(status: &PublicStatus, xml: String, kind: HeaderValue) -> Response {
    let mut response = xml.into_response();
    add_page_headers(response.headers_mut(), &status.page, kind, cache_control(&status.page));
    response
}

/// Planned maintenance, then incidents, the newest first.
fn entries(status: &PublicStatus, page: &str, language: Language) -> Vec<Entry> {
    let (words, zone) = (language.words(), Zone::utc());
    let time = |at: UnixMs| format!("{} UTC", language.moment(at, &zone));
    let windows = status.windows().map(|(window, names)| Entry {
        id: window.id.clone(),
        title: format!("{}: {}", words.planned_maintenance, window.spec.title),
        text: format!(
            "{} {} {} {}. {}: {}",
            words.mail_from,
            time(UnixMs(window.spec.starts_at_ms)),
            words.mail_to,
            time(UnixMs(window.spec.ends_at_ms)),
            words.affects,
            names.join(", ")
        ),
        link: page.to_owned(),
        changed_at: UnixMs(window.spec.starts_at_ms.min(status.now.0)),
    });
    let incidents = status.incidents().into_iter().map(|(monitor, incident)| {
        let updates = status.updates_of(incident);
        let mut text = match incident.resolved_at {
            Some(until) => format!("{} – {}", time(incident.opened_at), time(until)),
            None => format!("{} – {}", time(incident.opened_at), words.ongoing),
        };
        for update in updates {
            let _ = write!(
                text,
                "\n\n{}, {}: {}",
                time(update.written_at),
                words.update(update.status),
                update.text
            );
        }
        let newest = updates.first().map_or(incident.opened_at, |update| update.written_at);
        Entry {
            id: incident.id.clone(),
            title: format!("{}: {}", monitor.spec.name, word(incident, words)),
            text,
            link: format!("{page}#{}", incident.id),
            changed_at: incident.resolved_at.unwrap_or(incident.opened_at).max(newest),
        }
    });
    windows.chain(incidents).collect()
}

fn word(incident: &Incident, words: &Words) -> &'static str {
    match (incident.resolved_at, incident.resolution) {
        (Some(_), Some(Resolution::Paused)) => words.paused,
        (Some(_), _) => words.resolved,
        (None, _) if incident.maintenance => words.maintenance,
        (None, _) => words.down,
    }
}
