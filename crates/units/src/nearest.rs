//! Suggestions for misspelled names.

/// The candidate that was probably meant: at most two edits away from the text, or one edit for short words.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let allowed = if word.chars().count() <= 4 { 1 } else { 2 };
    candidates
        .into_iter()
        .map(|candidate| (strsim::levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_has_at_most_two_edits() {
        let known = ["login", "password", "id"];
        assert_eq!(nearest("lgoin", known), Some("login"));
        assert_eq!(nearest("passwort", known), Some("password"));
        assert_eq!(nearest("ids", known), Some("id"));
        assert_eq!(nearest("user", known), None);
    }
}
