//! Every scope that a route requires must be explained in the table of the security page, and no other.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use regex::Regex;

use super::Tree;

const ROUTES: &str = "docs/routes.md";
const PAGE: &str = "docs/security.md";

impl Tree {
    pub(super) fn check_scopes(&self, problems: &mut Vec<String>) -> Result<()> {
        let page = |path: &str| self.0.get(path).with_context(|| format!("{path} is missing"));
        problems.extend(differences(page(ROUTES)?, page(PAGE)?)?);
        Ok(())
    }
}

fn differences(routes: &str, page: &str) -> Result<Vec<String>> {
    let required = Regex::new(r"(?m)^\| [A-Z]+ \| `[^`]+` \| ([^ |]+) \|")?;
    let explained = Regex::new(r"(?m)^\| `(public|known|admin|[a-z_]+:(?:read|write))` \|")?;
    let found = |pattern: &Regex, text: &str| -> BTreeSet<String> {
        pattern.captures_iter(text).map(|found| found[1].to_owned()).collect()
    };
    let (required, explained) = (found(&required, routes), found(&explained, page));
    let missing = required.difference(&explained).map(|scope| {
        format!("{PAGE}: the table of scopes lacks {scope}, which a route in {ROUTES} requires")
    });
    let unknown = explained
        .difference(&required)
        .map(|scope| format!("{PAGE}: the table of scopes has {scope}, which no route in {ROUTES} requires"));
    Ok(missing.chain(unknown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "| method | path | scope | audit log |\n|---|---|---|---|\n\
        | GET | `/healthz` | public |  |\n| PUT | `/api/v1/load/plans/{id}` | load:write | `load.plan.edit` |\n";

    #[test]
    fn table_has_the_scopes_of_the_routes() {
        let page = "| scope | can |\n|---|---|\n| `public` | this |\n| `load:write` | that |\n";
        assert!(differences(ROUTES, page).unwrap().is_empty());
        let missing = differences(ROUTES, &page.replace("| `load:write` | that |\n", "")).unwrap();
        assert!(matches!(&*missing, [one] if one.contains("lacks load:write")), "{missing:?}");
        let unknown = differences(ROUTES, &page.replace("public", "known")).unwrap();
        assert_eq!(unknown.len(), 2, "{unknown:?}");
    }
}
