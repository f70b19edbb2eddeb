//! Answers that come in pages.

use async_trait::async_trait;
use kerf_aws_wire::{Operation, ec2, iam, pricing};

use crate::calls::Aws;
use crate::error::AwsError;

/// A request whose answer may have a next page.
#[async_trait]
pub trait Paged: Operation + Send {
    type Item: Send;

    /// One page, and the token of the next.
    async fn page(&self, aws: &dyn Aws) -> Result<(Vec<Self::Item>, Option<String>), AwsError>;

    fn continue_from(&mut self, token: String);
}

/// The items of all pages.
pub async fn all_pages<R: Paged>(aws: &dyn Aws, mut request: R) -> Result<Vec<R::Item>, AwsError> {
    let mut all = Vec::new();
    loop {
        let (items, token) = request.page(aws).await?;
        all.extend(items);
        match token.filter(|token| !token.is_empty()) {
            Some(token) => request.continue_from(token),
            None => return Ok(all),
        }
    }
}

macro_rules! paged {
    ($($request:ty: $method:ident, $token:ident -> $next:ident, $items:ident: $item:ty;)*) => {
        $(#[async_trait]
        impl Paged for $request {
            type Item = $item;

            async fn page(&self, aws: &dyn Aws) -> Result<(Vec<$item>, Option<String>), AwsError> {
                let page = aws.$method(self).await?;
                Ok((page.$items, page.$next))
            }

            fn continue_from(&mut self, token: String) {
                self.$token = Some(token);
            }
        })*
    };
}

paged! {
    ec2::DescribeLaunchTemplatesRequest: describe_launch_templates, next_token -> next_token, launch_templates: ec2::LaunchTemplate;
    ec2::DescribeInstancesRequest: describe_instances, next_token -> next_token, reservations: ec2::Reservation;
    ec2::DescribeInstanceStatusRequest: describe_instance_status, next_token -> next_token, instance_statuses: ec2::InstanceStatus;
    ec2::DescribeInstanceTypesRequest: describe_instance_types, next_token -> next_token, instance_types: ec2::InstanceTypeInfo;
    ec2::DescribeInstanceTypeOfferingsRequest: describe_instance_type_offerings, next_token -> next_token, instance_type_offerings: ec2::InstanceTypeOffering;
    ec2::DescribeSubnetsRequest: describe_subnets, next_token -> next_token, subnets: ec2::Subnet;
    ec2::DescribeSecurityGroupsRequest: describe_security_groups, next_token -> next_token, security_groups: ec2::SecurityGroup;
    ec2::DescribeImagesRequest: describe_images, next_token -> next_token, images: ec2::Image;
    ec2::DescribeSpotPriceHistoryRequest: describe_spot_price_history, next_token -> next_token, spot_price_history: ec2::SpotPrice;
    ec2::DescribeCapacityReservationsRequest: describe_capacity_reservations, next_token -> next_token, capacity_reservations: ec2::CapacityReservation;
    iam::ListInstanceProfilesRequest: list_instance_profiles, marker -> marker, instance_profiles: iam::InstanceProfile;
    pricing::GetProductsRequest: get_products, next_token -> next_token, price_list: String;
}
