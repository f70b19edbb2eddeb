//! Kinds of images, and the aliases of those that AWS makes for EKS.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A kind of image.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum AmiFamily {
    #[serde(rename = "AL2")]
    Al2,
    #[serde(rename = "AL2023")]
    Al2023,
    Bottlerocket,
    Custom,
    Windows2019,
    Windows2022,
    Windows2025,
}

impl AmiFamily {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Al2 => "AL2",
            Self::Al2023 => "AL2023",
            Self::Bottlerocket => "Bottlerocket",
            Self::Custom => "Custom",
            Self::Windows2019 => "Windows2019",
            Self::Windows2022 => "Windows2022",
            Self::Windows2025 => "Windows2025",
        }
    }

    pub fn is_windows(self) -> bool {
        self.windows_build().is_some()
    }

    /// The value of the label `node.kubernetes.io/windows-build`.
    pub fn windows_build(self) -> Option<&'static str> {
        match self {
            Self::Windows2019 => Some("10.0.17763"),
            Self::Windows2022 => Some("10.0.20348"),
            Self::Windows2025 => Some("10.0.26100"),
            Self::Al2 | Self::Al2023 | Self::Bottlerocket | Self::Custom => None,
        }
    }
}

impl fmt::Display for AmiFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An image of AWS's own for EKS, written like `al2023@latest` or `bottlerocket@v1.10.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    family: AmiFamily,
    version: AliasVersion,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AliasVersion {
    Latest,
    Pinned(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseAliasError {
    #[error("{0:?} is not an alias; write it like al2023@latest")]
    Malformed(String),
    #[error("{0:?} is not the family of an alias; use {families}", families = FAMILIES_OF_ALIASES.map(|(name, _)| name).join(", "))]
    UnknownFamily(String),
    #[error("{alias:?} names a version, but of {family} there is only latest")]
    PinnedWindows { alias: String, family: AmiFamily },
}

pub(crate) const FAMILIES_OF_ALIASES: [(&str, AmiFamily); 6] = [
    ("al2", AmiFamily::Al2),
    ("al2023", AmiFamily::Al2023),
    ("bottlerocket", AmiFamily::Bottlerocket),
    ("windows2019", AmiFamily::Windows2019),
    ("windows2022", AmiFamily::Windows2022),
    ("windows2025", AmiFamily::Windows2025),
];

const LATEST: &str = "latest";

impl Alias {
    /// Never Custom.
    pub fn family(&self) -> AmiFamily {
        self.family
    }

    pub fn version(&self) -> &AliasVersion {
        &self.version
    }
}

impl FromStr for Alias {
    type Err = ParseAliasError;

    /// The CRD lets a second `@` pass, at which Karpenter ends its process.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParseAliasError::Malformed(text.to_owned());
        let (name, version) = text.split_once('@').ok_or_else(malformed)?;
        if version.is_empty() || version.contains('@') {
            return Err(malformed());
        }
        let of_name = FAMILIES_OF_ALIASES.iter().find(|(known, _)| *known == name);
        let &(_, family) =
            of_name.ok_or_else(|| ParseAliasError::UnknownFamily(name.to_owned()))?;
        let version = match version {
            LATEST => AliasVersion::Latest,
            _ if family.is_windows() => {
                return Err(ParseAliasError::PinnedWindows { alias: text.to_owned(), family });
            }
            pinned => AliasVersion::Pinned(pinned.to_owned()),
        };
        Ok(Self { family, version })
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = FAMILIES_OF_ALIASES.iter().find(|(_, family)| *family == self.family);
        let name = named.map_or("", |(name, _)| name);
        let version = match &self.version {
            AliasVersion::Latest => LATEST,
            AliasVersion::Pinned(version) => version,
        };
        write!(f, "{name}@{version}")
    }
}

impl Serialize for Alias {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Alias {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_a_family_and_a_version() {
        for (text, family, version) in [
            ("al2@latest", AmiFamily::Al2, None),
            ("al2023@v20240625", AmiFamily::Al2023, Some("v20240625")),
            ("bottlerocket@v1.10.0", AmiFamily::Bottlerocket, Some("v1.10.0")),
            ("bottlerocket@1.10.0", AmiFamily::Bottlerocket, Some("1.10.0")),
            ("windows2025@latest", AmiFamily::Windows2025, None),
        ] {
            let alias: Alias = text.parse().unwrap();
            let version = version
                .map_or(AliasVersion::Latest, |version| AliasVersion::Pinned(version.to_owned()));
            assert_eq!((alias.family(), alias.version()), (family, &version), "{text}");
            assert_eq!(alias.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_alias_is_refused_with_what_to_write() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<Alias>().unwrap_err().to_string(), expected);
        };
        for text in ["", "al2023", "al2023@", "al2023@a@b", "windows2022@latest@x"] {
            check(text, &format!("{text:?} is not an alias; write it like al2023@latest"));
        }
        check(
            "AL2023@latest",
            "\"AL2023\" is not the family of an alias; use al2, al2023, bottlerocket, windows2019, windows2022, windows2025",
        );
        check(
            "windows2022@2024.07.10",
            "\"windows2022@2024.07.10\" names a version, but of Windows2022 there is only latest",
        );
    }
}
