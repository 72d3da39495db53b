//! The expansion of `keys!`.

use std::path::{Path, PathBuf};

use hob_schema::{Family, IdForm, IdRule, Limit, Schema, Tag, TtlRule, format_duration};
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{format_ident, quote};

use crate::names::{constant, function, is_variant, type_name};

/// Methods that every `Keys` has; a family cannot take their names.
const TAKEN: [&str; 4] = ["new", "from_env", "space", "clone"];

pub(crate) fn keys(input: TokenStream) -> TokenStream {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
    path_argument(input)
        .and_then(|path| read(&root, &path))
        .and_then(|(path, schema)| expand(&path, &schema))
        .unwrap_or_else(|error| quote! { ::core::compile_error!(#error); })
}

fn path_argument(input: TokenStream) -> Result<String, String> {
    let tokens: Vec<TokenTree> = input.into_iter().collect();
    if let [TokenTree::Literal(literal)] = tokens.as_slice() {
        let text = literal.to_string();
        if let Some(path) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            return Ok(path.to_owned());
        }
    }
    Err("keys! takes the path of one schema file: keys!(\"schemas/chat.toml\")".to_owned())
}

/// Finds the file beside the crate or in a folder above it.
fn read(root: &Path, path: &str) -> Result<(PathBuf, Schema), String> {
    let found = root.ancestors().map(|folder| folder.join(path)).find(|file| file.is_file());
    let file =
        found.ok_or_else(|| format!("{path} is neither in {} nor in a folder above it", root.display()))?;
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{path} cannot be read: {error}"))?;
    let schema = Schema::parse(path, &text).map_err(|errors| errors.to_string())?;
    Ok((file, schema))
}

fn expand(path: &Path, schema: &Schema) -> Result<TokenStream, String> {
    if let Some(family) = schema.families.iter().find(|family| TAKEN.contains(&family.name.as_str())) {
        let position = family.position;
        return Err(format!(
            "{}:{}:{}: `{}` is already a method of Keys\n    write instead: another name for the family",
            schema.file, position.line, position.column, family.name
        ));
    }
    let ids =
        schema.ids.iter().enumerate().filter(|(_, id)| id.of.is_none()).map(|(index, id)| id_type(index, id));
    let families =
        schema.families.iter().enumerate().map(|(index, family)| family_items(index, family, schema));
    let channels = schema.channels.iter().enumerate().map(|(index, channel)| {
        let name = format_ident!("{}_channel", channel.name);
        let (arguments, values) = arguments(channel.pattern.ids(), schema);
        let doc = doc(channel.purpose.as_deref(), &channel.pattern.text, &channel.contract);
        quote! {
            #[doc = #doc]
            pub fn #name(&self #(, #arguments)*) -> ::std::string::String {
                self.space.channel(#index, &[#(#values),*])
            }
        }
    });
    let head = keys_type(path, schema);
    Ok(quote! {
        #head
        #[allow(dead_code)]
        impl Keys {
            #(#families)*
            #(#channels)*
        }
        #(#ids)*
    })
}

/// `Keys` itself and how it is made.
fn keys_type(path: &Path, schema: &Schema) -> TokenStream {
    let (file, path) = (&schema.file, path.display().to_string());
    let doc = format!("The keys of the `{}` schema, `{file}`.", schema.name);
    quote! {
        /// The schema, read once; the compiler has read it before.
        #[allow(dead_code)]
        pub fn schema() -> &'static ::hob_schema::Schema {
            static SCHEMA: ::std::sync::LazyLock<::hob_schema::Schema> = ::std::sync::LazyLock::new(|| {
                // Including the text also makes cargo build again when the file changes.
                ::hob_schema::Schema::parse(#file, ::core::include_str!(#path)).expect("checked at compile time")
            });
            &SCHEMA
        }

        #[doc = #doc]
        #[derive(Clone, Debug)]
        pub struct Keys {
            space: ::std::sync::Arc<::hob_schema::Keyspace>,
        }

        #[allow(dead_code)]
        impl Keys {
            /// With the prefix and the limits of the file.
            pub fn new(layout: ::hob_schema::Layout) -> Self {
                Self { space: ::std::sync::Arc::new(::hob_schema::Keyspace::new(schema().clone(), layout)) }
            }

            /// With the prefix, limits and channel names that the environment sets.
            pub fn from_env(
                layout: ::hob_schema::Layout,
                env: &dyn Fn(&str) -> ::core::option::Option<::std::string::String>,
            ) -> ::core::result::Result<Self, ::hob_schema::BadEnv> {
                let mut schema = schema().clone();
                schema.apply_env(env)?;
                Ok(Self { space: ::std::sync::Arc::new(::hob_schema::Keyspace::new(schema, layout)) })
            }

            /// The schema under its prefix and layout.
            pub fn space(&self) -> &::hob_schema::Keyspace {
                &self.space
            }
        }
    }
}

/// The constructor of a family, its limits as constants, and as methods where the environment can change them.
fn family_items(index: usize, family: &Family, schema: &Schema) -> TokenStream {
    let name = function(&family.name);
    let (mut parameters, values) = arguments(family.pattern.ids(), schema);
    let shard = match family.tag {
        Tag::Shard { by: None } => {
            parameters.push(quote! { shard: ::hob_schema::Shard });
            quote! { ::core::option::Option::Some(shard) }
        }
        _ => quote! { ::core::option::Option::None },
    };
    let doc = doc(family.purpose.as_deref(), &family.pattern.text, &family.contract);
    let limits = limits(index, family);
    quote! {
        #[doc = #doc]
        pub fn #name(&self #(, #parameters)*) -> ::hob_store::Key {
            ::hob_store::Key::declared(self.space.key(#index, &[#(#values),*], #shard))
        }
        #limits
    }
}

fn limits(index: usize, family: &Family) -> TokenStream {
    let ttl = |what: &str, limit: &Limit<std::time::Duration>| {
        let (name, ms) =
            (constant(&family.name, what), u64::try_from(limit.value.as_millis()).unwrap_or(u64::MAX));
        let doc = limit_doc(&format_duration(limit.value), limit);
        quote! {
            #[doc = #doc]
            pub const #name: ::core::time::Duration = ::core::time::Duration::from_millis(#ms);
        }
    };
    let mut items = match &family.ttl.rule {
        TtlRule::Undeclared | TtlRule::None { .. } => vec![],
        TtlRule::Max(limit) => vec![ttl("TTL_MAX", limit)],
        TtlRule::Exact(limit) => vec![ttl("TTL", limit)],
        TtlRule::Range(least, most) => vec![ttl("TTL_MIN", least), ttl("TTL_MAX", most)],
        TtlRule::Late { max, .. } => vec![ttl("TTL_LATE", max)],
        TtlRule::After { keep, backstop, .. } => std::iter::once(ttl("TTL_AFTER", keep))
            .chain(backstop.as_ref().map(|backstop| ttl("TTL_BACKSTOP", backstop)))
            .collect(),
    };
    if family.ttl.rule.longest().is_some() {
        let name = format_ident!("{}_ttl", family.name);
        items.push(quote! {
            /// The longest TTL of the family, as set by the environment.
            pub fn #name(&self) -> ::core::time::Duration {
                self.space.schema().families[#index].ttl.rule.longest().unwrap_or_default()
            }
        });
    }
    items.extend(family.stream.max_age.as_ref().map(|limit| ttl("MAX_AGE", limit)));
    let field_ttl = family.field_ttl.as_ref().and_then(TtlRule::longest).map(Limit::fixed);
    items.extend(field_ttl.map(|limit| ttl("FIELD_TTL_MAX", &limit)));
    if let Some(limit) = &family.stream.max_pending {
        let (name, value) = (constant(&family.name, "MAX_PENDING"), limit.value);
        let doc = limit_doc(&value.to_string(), limit);
        items.push(quote! {
            #[doc = #doc]
            pub const #name: u64 = #value;
        });
    }
    for (what, limit) in [("max_len", &family.max_len), ("max_keys", &family.max_keys)] {
        let Some(limit) = limit else { continue };
        let (name, value) = (constant(&family.name, &what.to_ascii_uppercase()), limit.value);
        let doc = limit_doc(&value.to_string(), limit);
        items.push(quote! {
            #[doc = #doc]
            pub const #name: u64 = #value;
        });
        if limit.env.is_some() {
            let (name, field) = (format_ident!("{}_{what}", family.name), format_ident!("{what}"));
            items.push(quote! {
                #[doc = #doc]
                pub fn #name(&self) -> u64 {
                    self.space.schema().families[#index].#field.as_ref().map_or(u64::MAX, |limit| limit.value)
                }
            });
        }
    }
    quote! { #(#items)* }
}

fn limit_doc<T>(value: &str, limit: &Limit<T>) -> String {
    match &limit.env {
        Some(env) => format!("{value} unless `{}` is set.", env.name),
        None => format!("{value}."),
    }
}

/// The typed parameters of a pattern and the texts to pass on.
fn arguments(ids: impl Iterator<Item = usize>, schema: &Schema) -> (Vec<TokenStream>, Vec<TokenStream>) {
    let mut names: Vec<Ident> = Vec::new();
    ids.map(|id| {
        let rule = &schema.ids[id];
        let base = rule.of.as_deref().unwrap_or(&rule.name);
        let (mut name, type_name) = (function(base), type_name(base));
        if names.contains(&name) {
            name = format_ident!("{name}_{}", names.len() + 1);
        }
        names.push(name.clone());
        (quote! { #name: &#type_name }, quote! { #name.as_str() })
    })
    .unzip()
}

fn doc(purpose: Option<&str>, pattern: &str, contract: &[String]) -> String {
    let contract = if contract.is_empty() { String::new() } else { format!(" ({})", contract.join(", ")) };
    format!("{}\n\n`{pattern}`{contract}", purpose.unwrap_or_default())
}

/// An id: an enum if the file lists all values, else a checked text.
fn id_type(index: usize, id: &IdRule) -> TokenStream {
    match &id.form {
        IdForm::OneOf(words) if words.iter().all(|word| is_variant(word)) => id_enum(id, words),
        _ => id_text(index, id),
    }
}

fn id_text(index: usize, id: &IdRule) -> TokenStream {
    let name = type_name(&id.name);
    let note = id.note.as_deref().unwrap_or_default();
    let doc = format!("`{}`: {}, at most {} bytes. {note}", id.name, id.form.describe(), id.max);
    quote! {
        #[doc = #doc]
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct #name(::std::string::String);

        #[allow(dead_code)]
        impl #name {
            pub fn new(id: impl ::std::string::ToString) -> ::core::result::Result<Self, ::hob_schema::IdError> {
                let id = id.to_string();
                schema().ids[#index].check(&id)?;
                Ok(Self(id))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl ::core::fmt::Display for #name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(&self.0)
            }
        }
    }
}

fn id_enum(id: &IdRule, words: &[String]) -> TokenStream {
    let name = type_name(&id.name);
    let variants: Vec<Ident> = words.iter().map(|word| type_name(word)).collect();
    let doc = format!("`{}`: {}.", id.name, id.form.describe());
    quote! {
        #[doc = #doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(dead_code)]
        pub enum #name { #(#variants),* }

        #[allow(dead_code)]
        impl #name {
            pub const ALL: &'static [#name] = &[#(#name::#variants),*];

            pub fn as_str(&self) -> &'static str {
                match self { #(#name::#variants => #words),* }
            }
        }

        impl ::core::fmt::Display for #name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_in_the_file_has_a_position() {
        let folder = std::env::temp_dir().join(format!("hob-schema-macros-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("deep")).unwrap();
        std::fs::write(folder.join("bad.toml"), "[schema]\nname = \"x\"\n").unwrap();
        let error = read(&folder.join("deep"), "bad.toml").unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(error.starts_with("bad.toml:1:1: [schema] has no `version`"), "{error}");
    }

    #[test]
    fn family_cannot_take_the_name_of_a_method() {
        let text = "[schema]\nname = \"x\"\nversion = 1\n[key.new]\npattern = \"a\"\ntype = \"set\"\n";
        let schema = Schema::parse("x.toml", text).unwrap();
        let error = expand(Path::new("x.toml"), &schema).unwrap_err();
        assert!(error.starts_with("x.toml:4:6: `new` is already a method"), "{error}");
    }

    #[test]
    fn anything_but_one_path_is_refused() {
        assert!(path_argument(quote! { "a.toml" }).is_ok());
        assert!(path_argument(quote! { 1 }).is_err());
        assert!(path_argument(quote! { "a", "b" }).is_err());
    }
}
