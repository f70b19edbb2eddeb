//! Block devices: the class's own, or those of its image family.

use kerf_aws_api::{AmiFamily, BlockDevice, BlockDeviceMapping, Ec2NodeClassSpec, VolumeType};
use kerf_aws_wire::ec2::{
    LaunchTemplateBlockDeviceMappingRequest, LaunchTemplateEbsBlockDeviceRequest,
};

const GIB: u64 = 1 << 30;

/// What instances of the family get when the class names no devices: encrypted volumes of the type gp3. The last is the one
/// that containers are on.
pub fn default_block_devices(family: AmiFamily) -> Vec<BlockDeviceMapping> {
    let volumes: &[(&str, &str)] = match family {
        AmiFamily::Al2 | AmiFamily::Al2023 => &[("/dev/xvda", "20Gi")],
        AmiFamily::Bottlerocket => &[("/dev/xvda", "4Gi"), ("/dev/xvdb", "20Gi")],
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            &[("/dev/sda1", "50Gi")]
        }
        AmiFamily::Custom => &[],
    };
    let mapping = |(device, size): &(&str, &str)| BlockDeviceMapping {
        device_name: Some((*device).to_owned()),
        ebs: Some(BlockDevice {
            encrypted: Some(true),
            volume_type: Some(VolumeType::Gp3),
            volume_size: size.parse().ok(),
            ..BlockDevice::default()
        }),
        root_volume: false,
    };
    volumes.iter().map(mapping).collect()
}

pub(super) fn requests(spec: &Ec2NodeClassSpec) -> Vec<LaunchTemplateBlockDeviceMappingRequest> {
    let own = spec.block_device_mappings.clone().filter(|mappings| !mappings.is_empty());
    let mappings = own.unwrap_or_else(|| default_block_devices(spec.ami_family()));
    let request = |mapping: BlockDeviceMapping| LaunchTemplateBlockDeviceMappingRequest {
        device_name: mapping.device_name,
        ebs: mapping.ebs.map(volume),
        ..LaunchTemplateBlockDeviceMappingRequest::default()
    };
    mappings.into_iter().map(request).collect()
}

fn volume(volume: BlockDevice) -> LaunchTemplateEbsBlockDeviceRequest {
    // EC2 refuses a zero where it would take nothing at all.
    let number = |number: Option<i64>| {
        number.filter(|number| *number != 0).map(|number| i32::try_from(number).unwrap_or(i32::MAX))
    };
    let size = volume.volume_size.map(|size| size.bytes().div_ceil(GIB));
    LaunchTemplateEbsBlockDeviceRequest {
        delete_on_termination: volume.delete_on_termination,
        encrypted: volume.encrypted,
        iops: number(volume.iops),
        kms_key_id: volume.kms_key_id,
        snapshot_id: volume.snapshot_id,
        throughput: number(volume.throughput),
        volume_initialization_rate: volume.volume_initialization_rate,
        volume_size: size.map(|size| i32::try_from(size).unwrap_or(i32::MAX)),
        volume_type: volume.volume_type.map(|kind| kind.as_str().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rows(spec: Value) -> Vec<String> {
        let row = |mapping: LaunchTemplateBlockDeviceMappingRequest| {
            let ebs = mapping.ebs.unwrap();
            format!(
                "{} {}GiB {} encrypted={:?} iops={:?}",
                mapping.device_name.unwrap(),
                ebs.volume_size.unwrap_or_default(),
                ebs.volume_type.unwrap_or_default(),
                ebs.encrypted.unwrap_or_default(),
                ebs.iops
            )
        };
        requests(&serde_json::from_value(spec).unwrap()).into_iter().map(row).collect()
    }

    #[test]
    fn each_family_has_its_devices() {
        for (family, expected) in [
            ("AL2", &["/dev/xvda 20GiB"][..]),
            ("AL2023", &["/dev/xvda 20GiB"]),
            ("Bottlerocket", &["/dev/xvda 4GiB", "/dev/xvdb 20GiB"]),
            ("Windows2022", &["/dev/sda1 50GiB"]),
            ("Custom", &[]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|row| format!("{row} gp3 encrypted=true iops=None")).collect();
            assert_eq!(rows(json!({ "amiFamily": family })), expected, "{family}");
            let none = json!({ "amiFamily": family, "blockDeviceMappings": [] });
            assert_eq!(rows(none), expected, "{family}");
        }
    }

    #[test]
    fn the_class_decides_and_sizes_are_whole_gib() {
        for (size, iops, expected) in [
            ("100Gi", 3000, "/dev/a 100GiB io1 encrypted=false iops=Some(3000)"),
            ("100G", 0, "/dev/a 94GiB io1 encrypted=false iops=None"),
            ("1Ti", 1, "/dev/a 1024GiB io1 encrypted=false iops=Some(1)"),
        ] {
            let ebs = json!({"volumeSize": size, "volumeType": "io1", "iops": iops});
            let mapping = json!([{"deviceName": "/dev/a", "ebs": ebs}]);
            assert_eq!(
                rows(json!({"amiFamily": "AL2023", "blockDeviceMappings": mapping})),
                [expected]
            );
        }
    }
}
