//! The id by which Kubernetes knows an instance.

use std::{fmt, str::FromStr};

/// Written like `aws:///us-west-2a/i-0123456789abcdef0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderId {
    pub zone: String,
    pub instance: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the provider id of an EC2 instance; it looks like aws:///ZONE/INSTANCE")]
pub struct ParseProviderIdError(String);

const SCHEME: &str = "aws:///";

impl FromStr for ProviderId {
    type Err = ParseProviderIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/'));
        match parts {
            Some((zone, instance)) if !instance.is_empty() => {
                Ok(Self { zone: zone.to_owned(), instance: instance.to_owned() })
            }
            _ => Err(ParseProviderIdError(text.to_owned())),
        }
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.zone, self.instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_zone_and_the_instance() {
        let text = "aws:///us-west-2a/i-0123456789abcdef0";
        let id: ProviderId = text.parse().unwrap();
        assert_eq!((id.zone.as_str(), id.instance.as_str()), ("us-west-2a", "i-0123456789abcdef0"));
        assert_eq!(id.to_string(), text);
        for text in ["", "aws:///", "aws:///us-west-2a", "aws:///us-west-2a/", "kwok://a/b"] {
            assert!(text.parse::<ProviderId>().is_err(), "{text}");
        }
    }
}
