//! Block devices of instances.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::schema;

/// A block device of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockDeviceMapping {
    /// Name of the device, such as /dev/xvda.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,

    /// The EBS volume behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ebs: Option<BlockDevice>,

    /// Whether the kubelet keeps its files on this device, so that its size is the node's ephemeral storage. At most one
    /// device is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub root_volume: bool,
}

/// An EBS volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockDevice {
    /// Whether the volume goes with its instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,

    /// Whether the volume is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,

    /// I/O operations per second; for the types gp3, io1 and io2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,

    /// The KMS key that the volume is encrypted with: its id, alias or ARN.
    #[serde(rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,

    /// Snapshot that the volume begins with.
    #[serde(rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,

    /// MiB per second; for the type gp3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,

    /// MiB per second at which the blocks of the snapshot are loaded. Needs snapshotID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 300))]
    pub volume_initialization_rate: Option<i32>,

    /// Size of the volume in Gi, G, Ti or T. Either this or snapshotID is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", regex(pattern = schema::VOLUME_SIZE))]
    pub volume_size: Option<VolumeSize>,

    /// Type of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<VolumeType>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeType {
    Standard,
    Io1,
    Io2,
    Gp2,
    Sc1,
    St1,
    Gp3,
}

impl VolumeType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Io1 => "io1",
            Self::Io2 => "io2",
            Self::Gp2 => "gp2",
            Self::Sc1 => "sc1",
            Self::St1 => "st1",
            Self::Gp3 => "gp3",
        }
    }
}

/// The size of a volume: a whole number of Gi, G, Ti or T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSize {
    count: u64,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Gi,
    G,
    Ti,
    T,
}

/// The longer suffixes come first.
const UNITS: [(&str, Unit); 4] =
    [("Gi", Unit::Gi), ("Ti", Unit::Ti), ("G", Unit::G), ("T", Unit::T)];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the size of a volume; write it like 100Gi, 100G, 1Ti or 1T")]
pub struct ParseVolumeSizeError(String);

impl VolumeSize {
    pub fn bytes(self) -> u64 {
        let unit = match self.unit {
            Unit::Gi => 1 << 30,
            Unit::G => 1_000_000_000,
            Unit::Ti => 1 << 40,
            Unit::T => 1_000_000_000_000,
        };
        self.count.saturating_mul(unit)
    }

    /// The same size as Kubernetes writes it: in the larger unit where that is a whole number.
    pub(crate) fn canonical(self) -> Self {
        let (larger, step) = match self.unit {
            Unit::Gi => (Unit::Ti, 1024),
            Unit::G => (Unit::T, 1000),
            Unit::Ti | Unit::T => return self,
        };
        if self.count.is_multiple_of(step) {
            Self { count: self.count / step, unit: larger }
        } else {
            self
        }
    }
}

impl FromStr for VolumeSize {
    type Err = ParseVolumeSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = UNITS.iter().find_map(|(suffix, unit)| {
            let count = text.strip_suffix(suffix)?;
            let is_number = count.starts_with(|first: char| ('1'..='9').contains(&first));
            Some(Self { count: count.parse().ok().filter(|_| is_number)?, unit: *unit })
        });
        parsed.ok_or_else(|| ParseVolumeSizeError(text.to_owned()))
    }
}

impl fmt::Display for VolumeSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = UNITS.iter().find(|(_, unit)| *unit == self.unit).map_or("", |(name, _)| name);
        write!(f, "{}{suffix}", self.count)
    }
}

impl Serialize for VolumeSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VolumeSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_of_four_units() {
        for (text, bytes, canonical) in [
            ("20Gi", 20 << 30, "20Gi"),
            ("1Ti", 1 << 40, "1Ti"),
            ("1024Gi", 1 << 40, "1Ti"),
            ("1000Gi", 1000 << 30, "1000Gi"),
            ("100G", 100_000_000_000, "100G"),
            ("2000G", 2_000_000_000_000, "2T"),
            ("64T", 64_000_000_000_000, "64T"),
        ] {
            let size: VolumeSize = text.parse().unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, text));
            assert_eq!(size.canonical().to_string(), canonical);
        }
        // The CRD's pattern lets the first two pass.
        for text in ["Ti", "T", "", "20", "20Mi", "1.5Gi", "+1Gi", "-1Gi", "0Gi", "1 Gi"] {
            assert!(text.parse::<VolumeSize>().is_err(), "{text}");
        }
    }
}
