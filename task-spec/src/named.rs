//! Enums whose variants have stable names.

/// A name outside an enum's variants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {got:?}")]
pub struct UnknownName {
    /// The kind of name.
    pub what: &'static str,
    /// The given name.
    pub got: String,
}

/// Defines an enum whose variants have stable names, each written once: serde, `as_str` and `ALL` all take them from here. With the name of
/// its kind (`: "round state"`), the enum also implements `Display` and `FromStr`.
///
/// A name is matched as `tt`: a `literal` reaches the derive of `ToSchema` in a group, and the derive does not find the name there.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $type:ident $(: $what:literal)? {
            $($(#[$of:meta])* $variant:ident = $name:tt,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ::serde::Serialize, ::serde::Deserialize)]
        $vis enum $type {
            $($(#[$of])* #[serde(rename = $name)] $variant,)+
        }

        impl $type {
            /// Every variant, in the order of their definition.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The stable name, as in JSON, task files and rows.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        $($crate::named_enum!(@text $type, $what);)?
    };
    (@text $type:ident, $what:literal) => {
        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::UnknownName;

            fn from_str(text: &str) -> ::std::result::Result<Self, Self::Err> {
                let unknown = || $crate::UnknownName { what: $what, got: text.to_owned() };
                Self::ALL.into_iter().find(|value| value.as_str() == text).ok_or_else(unknown)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::{Mode, PrivacyMechanism, RobustRule};

    #[test]
    fn names_in_task_files_are_pinned() {
        assert_eq!(Mode::ALL.map(Mode::as_str), ["sync", "semi_sync", "buffered"]);
        assert_eq!(
            RobustRule::ALL.map(RobustRule::as_str),
            ["median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "norm_filter"]
        );
        assert_eq!(
            PrivacyMechanism::ALL.map(PrivacyMechanism::as_str),
            [
                "none",
                "central_gaussian",
                "distributed_discrete_gaussian",
                "distributed_skellam",
                "tree",
                "banded_matrix",
                "local"
            ]
        );
    }

    #[test]
    fn serde_speaks_the_same_names() {
        for mode in Mode::ALL {
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.as_str());
            assert_eq!(serde_json::from_value::<Mode>(mode.as_str().into()).unwrap(), mode);
        }
        let wrong = serde_json::from_str::<Mode>("\"Sync\"").unwrap_err().to_string();
        assert!(
            wrong.starts_with("unknown variant `Sync`, expected one of `sync`, `semi_sync`, `buffered`"),
            "{wrong}"
        );
    }
}
