//! What a person would notice on a page.

use fantoccini::Client;

const COMPLAINTS: &str = include_str!("readable.js");

/// Panics if text on the page is too faint for WCAG AA, or if the page is wider than its window.
#[track_caller]
pub fn assert_readable(client: &Client, what: &str) -> impl Future<Output = ()> {
    let (client, what) = (client.clone(), what.to_owned());
    let caller = std::panic::Location::caller();
    async move {
        let complaints = client.execute(COMPLAINTS, Vec::new()).await;
        let complaints =
            complaints.unwrap_or_else(|error| panic!("{caller}: cannot look at {what}: {error}"));
        let complaints: Vec<String> = complaints
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect();
        assert!(complaints.is_empty(), "{caller}: {what}: {}", complaints.join("\n"));
    }
}
