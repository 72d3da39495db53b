//! Addresses with a query.

/// A path with these fields as its query; empty ones are left out.
#[must_use]
pub fn link(path: &str, fields: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
    }
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded() {
        assert_eq!(link("/a", &[("q", "x&y z"), ("empty", ""), ("n", "1")]), "/a?q=x%26y+z&n=1");
        assert_eq!(link("/a", &[]), "/a");
    }
}
