//! Typed sections of `hob.toml`. Each is declared once, with its defaults and descriptions.

/// Serializes a type with `Display`, and deserializes it with `FromStr`.
macro_rules! as_text {
    ($kind:ty) => {
        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

mod any;
mod hosts;
mod layers;
mod live;
mod mask;
mod mistakes;
mod secret;
mod secrets;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use any::{LiveSection, SectionType};
pub use hob_units::{Period, Secret};
pub use hosts::{Destination, HostPattern, HostPatternError, check_host, check_host_and_port, check_origin};
pub use layers::{ConfigError, File, Layers, Origin, Replaced, Setting};
pub use live::{Live, LiveSender};
pub use mask::Mask;
pub use mistakes::{Mistake, Mistakes, Ranged};
pub use secret::{SecretError, SecretRef, SecretUrl};
pub use secrets::{Hosts, SecretDenied, SecretEntry, SecretName, SecretNameError, Secrets, SecretsConfig};

/// One table of `hob.toml`. Made by [`section!`](crate::section).
pub trait Section: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name of the table.
    const NAME: &'static str;
    /// The description.
    const ABOUT: &'static str;
    /// The fields, in the order of the example file.
    const FIELDS: &'static [Field];

    /// What is wrong with the values.
    fn mistakes(&self) -> Mistakes {
        Mistakes::default()
    }

    /// What is wrong with the files that the values name. Only commands that use the files check them.
    fn file_mistakes(&self) -> Mistakes {
        Mistakes::default()
    }
}

/// A field of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub about: &'static str,
}

impl Field {
    /// The environment variable that overrides the field, such as `HOB_UPTIME_CONCURRENCY`.
    #[must_use]
    pub fn variable(&self, section: &str) -> String {
        format!("HOB_{section}_{}", self.name).to_ascii_uppercase()
    }
}

/// Declares a section of `hob.toml`: a struct with a default for each field. The doc comments appear in
/// `hob.example.toml` and in `hob config show`. A number or a duration may have a range, after `=>`. After the
/// struct, `check NAME;` names a function that adds further [`Mistakes`] of the values, and `check_files NAME;` names a
/// function that adds mistakes in the files to which the values refer.
///
/// ```
/// hob_service::section! {
///     /// Sends reports by mail.
///     pub struct Config("reports") {
///         /// Maximum number of reports per day.
///         pub max_per_day: u32 = 7 => 1..,
///         /// How often the queue is checked.
///         pub check_every: hob_service::Period = hob_service::Period::from_secs(30),
///     }
/// }
/// assert_eq!(Config::default().max_per_day, 7);
/// ```
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident($section:literal) {
            $($(#[doc = $field_about:literal])+ pub $field:ident: $kind:ty = $default:expr $(=> $range:expr)?,)*
        }
        $(check $check:path;)?
        $(check_files $check_files:path;)?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, $crate::macro_support::serde::Serialize, $crate::macro_support::serde::Deserialize)]
        #[serde(crate = "hob_service::macro_support::serde", default, deny_unknown_fields)]
        pub struct $name {
            $($(#[doc = $field_about])+ pub $field: $kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::Section for $name {
            const NAME: &'static str = $section;
            const ABOUT: &'static str = concat!($($about, "\n",)+);
            const FIELDS: &'static [$crate::config::Field] = &[
                $($crate::config::Field {
                    name: stringify!($field),
                    about: concat!($($field_about, "\n",)+),
                },)*
            ];

            #[allow(unused_mut, reason = "a section may have neither ranges nor a check")]
            fn mistakes(&self) -> $crate::config::Mistakes {
                let mut mistakes = $crate::config::Mistakes::default();
                $($(mistakes.check_range(stringify!($field), &self.$field, &($range));)?)*
                $($check(self, &mut mistakes);)?
                mistakes
            }

            $(fn file_mistakes(&self) -> $crate::config::Mistakes {
                let mut mistakes = $crate::config::Mistakes::default();
                $check_files(self, &mut mistakes);
                mistakes
            })?
        }
    };
}
