//! The HTTP interface for services: routes with the access that each requires, extractors, lists, problems, and the
//! OpenAPI document.

pub(crate) mod docs;
pub(crate) mod extract;
pub(crate) mod list;
pub(crate) mod openapi;
pub(crate) mod problem;
pub(crate) mod routes;
