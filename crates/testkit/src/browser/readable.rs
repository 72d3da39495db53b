//! Checks that a page is readable.

use fantoccini::Client;

const FIND_PROBLEMS: &str = include_str!("readable.js");

/// Panics if the contrast of a text is below WCAG AA, a label is too small, panels touch each other, or the page is wider than its
/// window.
#[track_caller]
pub fn assert_readable(client: &Client, what: &str) -> impl Future<Output = ()> {
    let (client, what) = (client.clone(), what.to_owned());
    let caller = std::panic::Location::caller();
    async move {
        let problems = client.execute(FIND_PROBLEMS, Vec::new()).await;
        let problems = problems.unwrap_or_else(|error| panic!("{caller}: cannot check {what}: {error}"));
        let problems: Vec<String> = problems
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect();
        assert!(problems.is_empty(), "{caller}: {what}: {}", problems.join("\n"));
    }
}
