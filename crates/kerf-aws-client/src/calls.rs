//! The calls, one row each.

use async_trait::async_trait;
use kerf_aws_wire::{arc_zonal_shift, ec2, eks, iam, pricing, sqs, ssm};

use crate::error::AwsError;

/// Hands all calls to a macro, which writes something for each.
macro_rules! for_each_call {
    ($write:ident) => {
        $write! {
            create_fleet: ec2::CreateFleetRequest => ec2::CreateFleetResponse,
            create_launch_template: ec2::CreateLaunchTemplateRequest => ec2::CreateLaunchTemplateResponse,
            delete_launch_template: ec2::DeleteLaunchTemplateRequest => ec2::DeleteLaunchTemplateResponse,
            describe_launch_templates: ec2::DescribeLaunchTemplatesRequest => ec2::DescribeLaunchTemplatesResponse,
            run_instances: ec2::RunInstancesRequest => ec2::RunInstancesResponse,
            create_tags: ec2::CreateTagsRequest => ec2::CreateTagsResponse,
            terminate_instances: ec2::TerminateInstancesRequest => ec2::TerminateInstancesResponse,
            describe_instances: ec2::DescribeInstancesRequest => ec2::DescribeInstancesResponse,
            describe_instance_status: ec2::DescribeInstanceStatusRequest => ec2::DescribeInstanceStatusResponse,
            get_console_output: ec2::GetConsoleOutputRequest => ec2::GetConsoleOutputResponse,
            describe_instance_types: ec2::DescribeInstanceTypesRequest => ec2::DescribeInstanceTypesResponse,
            describe_instance_type_offerings: ec2::DescribeInstanceTypeOfferingsRequest => ec2::DescribeInstanceTypeOfferingsResponse,
            describe_subnets: ec2::DescribeSubnetsRequest => ec2::DescribeSubnetsResponse,
            describe_security_groups: ec2::DescribeSecurityGroupsRequest => ec2::DescribeSecurityGroupsResponse,
            describe_images: ec2::DescribeImagesRequest => ec2::DescribeImagesResponse,
            describe_availability_zones: ec2::DescribeAvailabilityZonesRequest => ec2::DescribeAvailabilityZonesResponse,
            describe_spot_price_history: ec2::DescribeSpotPriceHistoryRequest => ec2::DescribeSpotPriceHistoryResponse,
            describe_capacity_reservations: ec2::DescribeCapacityReservationsRequest => ec2::DescribeCapacityReservationsResponse,
            describe_placement_groups: ec2::DescribePlacementGroupsRequest => ec2::DescribePlacementGroupsResponse,
            get_instance_profile: iam::GetInstanceProfileRequest => iam::GetInstanceProfileResponse,
            create_instance_profile: iam::CreateInstanceProfileRequest => iam::CreateInstanceProfileResponse,
            delete_instance_profile: iam::DeleteInstanceProfileRequest => iam::DeleteInstanceProfileResponse,
            list_instance_profiles: iam::ListInstanceProfilesRequest => iam::ListInstanceProfilesResponse,
            tag_instance_profile: iam::TagInstanceProfileRequest => iam::TagInstanceProfileResponse,
            add_role_to_instance_profile: iam::AddRoleToInstanceProfileRequest => iam::AddRoleToInstanceProfileResponse,
            remove_role_from_instance_profile: iam::RemoveRoleFromInstanceProfileRequest => iam::RemoveRoleFromInstanceProfileResponse,
            get_parameter: ssm::GetParameterRequest => ssm::GetParameterResponse,
            get_products: pricing::GetProductsRequest => pricing::GetProductsResponse,
            get_queue_url: sqs::GetQueueUrlRequest => sqs::GetQueueUrlResponse,
            receive_message: sqs::ReceiveMessageRequest => sqs::ReceiveMessageResponse,
            delete_message: sqs::DeleteMessageRequest => sqs::DeleteMessageResponse,
            describe_cluster: eks::DescribeClusterRequest => eks::DescribeClusterResponse,
            get_managed_resource: arc_zonal_shift::GetManagedResourceRequest => arc_zonal_shift::GetManagedResourceResponse,
        }
    };
}

pub(crate) use for_each_call;

macro_rules! declare {
    ($($method:ident: $request:ty => $response:ty,)*) => {
        /// AWS, as far as Kerf knows it: in one region, with the rights of one role.
        #[async_trait]
        pub trait Aws: std::fmt::Debug + Send + Sync {
            $(async fn $method(&self, request: &$request) -> Result<$response, AwsError>;)*
        }
    };
}

for_each_call!(declare);
