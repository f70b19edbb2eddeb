//! Where a service is, and for which region a request to it is signed.

use std::collections::BTreeMap;

use kerf_aws_wire::Service;

/// How endpoints are chosen: what the flags and variables of AWS say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    pub region: String,
    /// `AWS_USE_FIPS_ENDPOINT`
    pub fips: bool,
    /// `AWS_USE_DUALSTACK_ENDPOINT`
    pub dual_stack: bool,
    /// `AWS_ENDPOINT_URL`
    pub custom: Option<String>,
    /// `AWS_ENDPOINT_URL_<SERVICE>`, by the id of the service
    pub custom_by_service: BTreeMap<&'static str, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Without a slash at its end.
    pub(crate) url: String,
    pub(crate) signing_region: String,
}

impl Endpoints {
    pub(crate) fn of(&self, service: &Service) -> Endpoint {
        let partition = Partition::of(&self.region);
        let signing_region = match service.id {
            "IAM" => partition.iam_region,
            "Pricing" => pricing_region(&self.region),
            _ => &self.region,
        };
        let custom = self.custom_by_service.get(service.id).or(self.custom.as_ref());
        let url = match custom {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("https://{}", self.host(service, partition, signing_region)),
        };
        Endpoint { url, signing_region: signing_region.to_owned() }
    }

    fn host(&self, service: &Service, partition: &Partition, region: &str) -> String {
        let prefix = service.endpoint_prefix;
        let suffix = if self.dual_stack { partition.dual_stack_suffix } else { partition.suffix };
        let in_gov_cloud = partition.id == "aws-us-gov";
        // In GovCloud the ordinary endpoints are FIPS endpoints.
        let fips = self.fips && (self.dual_stack || !in_gov_cloud);
        let infix = if fips { "-fips" } else { "" };
        match service.id {
            "IAM" if self.dual_stack && ["aws", "aws-cn", "aws-eusc"].contains(&partition.id) => {
                format!("iam{infix}.global.{suffix}")
            }
            // One for all regions.
            "IAM" if partition.id == "aws" => format!("iam{infix}.{suffix}"),
            "IAM" if in_gov_cloud => format!("iam.us-gov.{suffix}"),
            "EKS" if fips && !self.dual_stack && partition.id == "aws" => {
                format!("fips.eks.{region}.{suffix}")
            }
            _ => format!("{prefix}{infix}.{region}.{suffix}"),
        }
    }
}

/// The Pricing API is in four regions only.
fn pricing_region(region: &str) -> &'static str {
    match region.split('-').next() {
        Some("ap") => "ap-south-1",
        Some("cn") => "cn-northwest-1",
        Some("eu") => "eu-central-1",
        _ => "us-east-1",
    }
}

/// A part of AWS with accounts and names of its own.
struct Partition {
    id: &'static str,
    region_prefix: &'static str,
    suffix: &'static str,
    dual_stack_suffix: &'static str,
    /// Where IAM, which has no regions, has its requests signed for.
    iam_region: &'static str,
}

/// The facts of botocore 1.44.0: partitions.json and the endpoint rules of IAM. The longer prefix comes first; the last row takes
/// every region that is newer than this table.
const PARTITIONS: [Partition; 8] = [
    Partition {
        id: "aws-cn",
        region_prefix: "cn-",
        suffix: "amazonaws.com.cn",
        dual_stack_suffix: "api.amazonwebservices.com.cn",
        iam_region: "cn-north-1",
    },
    Partition {
        id: "aws-us-gov",
        region_prefix: "us-gov-",
        suffix: "amazonaws.com",
        dual_stack_suffix: "api.aws",
        iam_region: "us-gov-west-1",
    },
    Partition {
        id: "aws-eusc",
        region_prefix: "eusc-",
        suffix: "amazonaws.eu",
        dual_stack_suffix: "api.amazonwebservices.eu",
        iam_region: "eusc-de-east-1",
    },
    Partition {
        id: "aws-iso",
        region_prefix: "us-iso-",
        suffix: "c2s.ic.gov",
        dual_stack_suffix: "api.aws.ic.gov",
        iam_region: "us-iso-east-1",
    },
    Partition {
        id: "aws-iso-b",
        region_prefix: "us-isob-",
        suffix: "sc2s.sgov.gov",
        dual_stack_suffix: "api.aws.scloud",
        iam_region: "us-isob-east-1",
    },
    Partition {
        id: "aws-iso-e",
        region_prefix: "eu-isoe-",
        suffix: "cloud.adc-e.uk",
        dual_stack_suffix: "api.cloud-aws.adc-e.uk",
        iam_region: "eu-isoe-west-1",
    },
    Partition {
        id: "aws-iso-f",
        region_prefix: "us-isof-",
        suffix: "csp.hci.ic.gov",
        dual_stack_suffix: "api.aws.hci.ic.gov",
        iam_region: "us-isof-south-1",
    },
    Partition {
        id: "aws",
        region_prefix: "",
        suffix: "amazonaws.com",
        dual_stack_suffix: "api.aws",
        iam_region: "us-east-1",
    },
];

impl Partition {
    fn of(region: &str) -> &'static Self {
        let found = PARTITIONS.iter().find(|partition| region.starts_with(partition.region_prefix));
        found.unwrap_or(&PARTITIONS[PARTITIONS.len() - 1])
    }
}

/// The part of AWS that a region belongs to, as names of resources begin with it: `aws`, `aws-cn`.
pub fn partition_of(region: &str) -> &'static str {
    Partition::of(region).id
}

#[cfg(test)]
mod tests {
    use kerf_aws_wire::{ec2, eks, iam, pricing, sqs, ssm};

    use super::*;

    #[test]
    fn a_service_is_where_its_partition_and_the_variant_say() {
        const PLAIN: (bool, bool) = (false, false);
        const FIPS: (bool, bool) = (true, false);
        const DUAL: (bool, bool) = (false, true);
        const BOTH: (bool, bool) = (true, true);
        let cases = [
            (&ec2::SERVICE, "us-west-2", PLAIN, "ec2.us-west-2.amazonaws.com", "us-west-2"),
            (&ec2::SERVICE, "us-west-2", FIPS, "ec2-fips.us-west-2.amazonaws.com", "us-west-2"),
            (&ec2::SERVICE, "us-west-2", DUAL, "ec2.us-west-2.api.aws", "us-west-2"),
            (&ec2::SERVICE, "us-west-2", BOTH, "ec2-fips.us-west-2.api.aws", "us-west-2"),
            (&ec2::SERVICE, "xx-new-1", PLAIN, "ec2.xx-new-1.amazonaws.com", "xx-new-1"),
            (&sqs::SERVICE, "cn-north-1", PLAIN, "sqs.cn-north-1.amazonaws.com.cn", "cn-north-1"),
            (
                &ec2::SERVICE,
                "us-gov-west-1",
                FIPS,
                "ec2.us-gov-west-1.amazonaws.com",
                "us-gov-west-1",
            ),
            (
                &ssm::SERVICE,
                "us-iso-east-1",
                PLAIN,
                "ssm.us-iso-east-1.c2s.ic.gov",
                "us-iso-east-1",
            ),
            (
                &ssm::SERVICE,
                "us-isob-east-1",
                PLAIN,
                "ssm.us-isob-east-1.sc2s.sgov.gov",
                "us-isob-east-1",
            ),
            (
                &eks::SERVICE,
                "eusc-de-east-1",
                PLAIN,
                "eks.eusc-de-east-1.amazonaws.eu",
                "eusc-de-east-1",
            ),
            (&eks::SERVICE, "us-east-2", FIPS, "fips.eks.us-east-2.amazonaws.com", "us-east-2"),
            (&eks::SERVICE, "us-east-2", BOTH, "eks-fips.us-east-2.api.aws", "us-east-2"),
            (
                &eks::SERVICE,
                "us-gov-east-1",
                FIPS,
                "eks.us-gov-east-1.amazonaws.com",
                "us-gov-east-1",
            ),
            (&iam::SERVICE, "eu-west-1", PLAIN, "iam.amazonaws.com", "us-east-1"),
            (&iam::SERVICE, "eu-west-1", FIPS, "iam-fips.amazonaws.com", "us-east-1"),
            (&iam::SERVICE, "eu-west-1", DUAL, "iam.global.api.aws", "us-east-1"),
            (
                &iam::SERVICE,
                "cn-northwest-1",
                PLAIN,
                "iam.cn-north-1.amazonaws.com.cn",
                "cn-north-1",
            ),
            (&iam::SERVICE, "us-gov-east-1", PLAIN, "iam.us-gov.amazonaws.com", "us-gov-west-1"),
            (&iam::SERVICE, "us-gov-east-1", FIPS, "iam.us-gov.amazonaws.com", "us-gov-west-1"),
            (
                &iam::SERVICE,
                "us-isof-south-1",
                PLAIN,
                "iam.us-isof-south-1.csp.hci.ic.gov",
                "us-isof-south-1",
            ),
            (
                &pricing::SERVICE,
                "us-west-2",
                PLAIN,
                "api.pricing.us-east-1.amazonaws.com",
                "us-east-1",
            ),
            (
                &pricing::SERVICE,
                "sa-east-1",
                PLAIN,
                "api.pricing.us-east-1.amazonaws.com",
                "us-east-1",
            ),
            (
                &pricing::SERVICE,
                "ap-southeast-2",
                PLAIN,
                "api.pricing.ap-south-1.amazonaws.com",
                "ap-south-1",
            ),
            (
                &pricing::SERVICE,
                "eu-north-1",
                PLAIN,
                "api.pricing.eu-central-1.amazonaws.com",
                "eu-central-1",
            ),
            (
                &pricing::SERVICE,
                "cn-north-1",
                PLAIN,
                "api.pricing.cn-northwest-1.amazonaws.com.cn",
                "cn-northwest-1",
            ),
        ];
        for (service, region, (fips, dual_stack), host, signing_region) in cases {
            let region = region.to_owned();
            let endpoint = Endpoints { region, fips, dual_stack, ..Default::default() }.of(service);
            assert_eq!(endpoint.url, format!("https://{host}"));
            assert_eq!(endpoint.signing_region, signing_region, "{host}");
        }
    }

    #[test]
    fn a_custom_endpoint_is_taken_as_it_is_and_that_of_the_service_first() {
        let endpoints = Endpoints {
            region: "us-west-2".to_owned(),
            fips: true,
            custom: Some("http://127.0.0.1:5999/".to_owned()),
            custom_by_service: [("IAM", "http://127.0.0.1:6000".to_owned())].into(),
            ..Default::default()
        };
        assert_eq!(endpoints.of(&ec2::SERVICE).url, "http://127.0.0.1:5999");
        let iam = endpoints.of(&iam::SERVICE);
        assert_eq!(
            (iam.url.as_str(), iam.signing_region.as_str()),
            ("http://127.0.0.1:6000", "us-east-1")
        );
    }
}
