// Made by `cargo xtask generate` from AWS's service models and shapes.txt; do not edit.

use jiff::Timestamp;

use crate::operation::{Protocol, Service, operations};
use crate::shape::shape;

pub const SERVICE: Service = Service {
    id: "EC2",
    endpoint_prefix: "ec2",
    signing_name: "ec2",
    version: "2016-11-15",
    protocol: Protocol::Ec2 { namespace: "http://ec2.amazonaws.com/doc/2016-11-15" },
};

operations! {
    CreateFleet(client_token): CreateFleetRequest -> CreateFleetResponse,
    CreateLaunchTemplate(client_token): CreateLaunchTemplateRequest -> CreateLaunchTemplateResponse,
    DeleteLaunchTemplate: DeleteLaunchTemplateRequest -> DeleteLaunchTemplateResponse,
    DescribeLaunchTemplates: DescribeLaunchTemplatesRequest -> DescribeLaunchTemplatesResponse,
    RunInstances(client_token): RunInstancesRequest -> RunInstancesResponse,
    CreateTags: CreateTagsRequest -> CreateTagsResponse,
    TerminateInstances: TerminateInstancesRequest -> TerminateInstancesResponse,
    DescribeInstances: DescribeInstancesRequest -> DescribeInstancesResponse,
    DescribeInstanceStatus: DescribeInstanceStatusRequest -> DescribeInstanceStatusResponse,
    GetConsoleOutput: GetConsoleOutputRequest -> GetConsoleOutputResponse,
    DescribeInstanceTypes: DescribeInstanceTypesRequest -> DescribeInstanceTypesResponse,
    DescribeInstanceTypeOfferings: DescribeInstanceTypeOfferingsRequest -> DescribeInstanceTypeOfferingsResponse,
    DescribeSubnets: DescribeSubnetsRequest -> DescribeSubnetsResponse,
    DescribeSecurityGroups: DescribeSecurityGroupsRequest -> DescribeSecurityGroupsResponse,
    DescribeImages: DescribeImagesRequest -> DescribeImagesResponse,
    DescribeAvailabilityZones: DescribeAvailabilityZonesRequest -> DescribeAvailabilityZonesResponse,
    DescribeSpotPriceHistory: DescribeSpotPriceHistoryRequest -> DescribeSpotPriceHistoryResponse,
    DescribeCapacityReservations: DescribeCapacityReservationsRequest -> DescribeCapacityReservationsResponse,
    DescribePlacementGroups: DescribePlacementGroupsRequest -> DescribePlacementGroupsResponse,
}

shape!(AvailabilityZone {
    opt_in_status: Option<String> = "optInStatus",
    region_name: Option<String> = "regionName",
    state: Option<String> = "zoneState",
    zone_id: Option<String> = "zoneId",
    zone_name: Option<String> = "zoneName",
    zone_type: Option<String> = "zoneType",
});

shape!(CapacityReservation {
    availability_zone: Option<String> = "availabilityZone",
    availability_zone_id: Option<String> = "availabilityZoneId",
    available_instance_count: Option<i32> = "availableInstanceCount",
    capacity_block_id: Option<String> = "capacityBlockId",
    capacity_reservation_id: Option<String> = "capacityReservationId",
    end_date: Option<Timestamp> = "endDate",
    end_date_type: Option<String> = "endDateType",
    instance_match_criteria: Option<String> = "instanceMatchCriteria",
    instance_platform: Option<String> = "instancePlatform",
    instance_type: Option<String> = "instanceType",
    interruptible: Option<bool> = "interruptible",
    owner_id: Option<String> = "ownerId",
    placement_group_arn: Option<String> = "placementGroupArn",
    reservation_type: Option<String> = "reservationType",
    start_date: Option<Timestamp> = "startDate",
    state: Option<String> = "state",
    tags: Vec<Tag> = "tagSet",
    tenancy: Option<String> = "tenancy",
    total_instance_count: Option<i32> = "totalInstanceCount",
});

shape!(CapacityReservationOptionsRequest {
    usage_strategy: Option<String> = "UsageStrategy",
});

shape!(CapacityReservationSpecificationResponse {
    capacity_reservation_preference: Option<String> = "capacityReservationPreference",
    capacity_reservation_target: Option<CapacityReservationTargetResponse> = "capacityReservationTarget",
});

shape!(CapacityReservationTarget {
    capacity_reservation_id: Option<String> = "CapacityReservationId",
});

shape!(CapacityReservationTargetResponse {
    capacity_reservation_id: Option<String> = "capacityReservationId",
});

shape!(ConnectionTrackingSpecificationRequest {
    tcp_established_timeout: Option<i32> = "TcpEstablishedTimeout",
    udp_stream_timeout: Option<i32> = "UdpStreamTimeout",
    udp_timeout: Option<i32> = "UdpTimeout",
});

shape!(CreateFleetError {
    error_code: Option<String> = "errorCode",
    error_message: Option<String> = "errorMessage",
    launch_template_and_overrides: Option<LaunchTemplateAndOverridesResponse> = "launchTemplateAndOverrides",
    lifecycle: Option<String> = "lifecycle",
});

shape!(CreateFleetInstance {
    availability_zone: Option<String> = "availabilityZone",
    availability_zone_id: Option<String> = "availabilityZoneId",
    instance_ids: Vec<String> = "instanceIds",
    instance_type: Option<String> = "instanceType",
    launch_template_and_overrides: Option<LaunchTemplateAndOverridesResponse> = "launchTemplateAndOverrides",
    lifecycle: Option<String> = "lifecycle",
    subnet_id: Option<String> = "subnetId",
});

shape!(CreateFleetRequest {
    client_token: Option<String> = "ClientToken",
    context: Option<String> = "Context",
    dry_run: Option<bool> = "DryRun",
    launch_template_configs: Vec<FleetLaunchTemplateConfigRequest> = "LaunchTemplateConfigs",
    on_demand_options: Option<OnDemandOptionsRequest> = "OnDemandOptions",
    reserved_capacity_options: Option<ReservedCapacityOptionsRequest> = "ReservedCapacityOptions",
    spot_options: Option<SpotOptionsRequest> = "SpotOptions",
    tag_specifications: Vec<TagSpecification> = "TagSpecification",
    target_capacity_specification: Option<TargetCapacitySpecificationRequest> = "TargetCapacitySpecification",
    r#type: Option<String> = "Type",
});

shape!(CreateFleetResponse {
    errors: Vec<CreateFleetError> = "errorSet",
    fleet_id: Option<String> = "fleetId",
    instances: Vec<CreateFleetInstance> = "fleetInstanceSet",
});

shape!(CreateLaunchTemplateRequest {
    client_token: Option<String> = "ClientToken",
    dry_run: Option<bool> = "DryRun",
    launch_template_data: Option<RequestLaunchTemplateData> = "LaunchTemplateData",
    launch_template_name: Option<String> = "LaunchTemplateName",
    tag_specifications: Vec<TagSpecification> = "TagSpecification",
});

shape!(CreateLaunchTemplateResponse {
    launch_template: Option<LaunchTemplate> = "launchTemplate",
});

shape!(CreateTagsRequest {
    dry_run: Option<bool> = "DryRun",
    resources: Vec<String> = "ResourceId",
    tags: Vec<Tag> = "Tag",
});

shape!(CreateTagsResponse {});

shape!(DeleteLaunchTemplateRequest {
    dry_run: Option<bool> = "DryRun",
    launch_template_id: Option<String> = "LaunchTemplateId",
    launch_template_name: Option<String> = "LaunchTemplateName",
});

shape!(DeleteLaunchTemplateResponse {
    launch_template: Option<LaunchTemplate> = "launchTemplate",
});

shape!(DescribeAvailabilityZonesRequest {
    all_availability_zones: Option<bool> = "AllAvailabilityZones",
    dry_run: Option<bool> = "DryRun",
    filters: Vec<Filter> = "Filter",
    zone_ids: Vec<String> = "ZoneId",
    zone_names: Vec<String> = "ZoneName",
});

shape!(DescribeAvailabilityZonesResponse {
    availability_zones: Vec<AvailabilityZone> = "availabilityZoneInfo",
});

shape!(DescribeCapacityReservationsRequest {
    capacity_reservation_ids: Vec<String> = "CapacityReservationId",
    dry_run: Option<bool> = "DryRun",
    filters: Vec<Filter> = "Filter",
    max_results: Option<i32> = "MaxResults",
    next_token: Option<String> = "NextToken",
});

shape!(DescribeCapacityReservationsResponse {
    capacity_reservations: Vec<CapacityReservation> = "capacityReservationSet",
    next_token: Option<String> = "nextToken",
});

shape!(DescribeImagesRequest {
    dry_run: Option<bool> = "DryRun",
    filters: Vec<Filter> = "Filter",
    image_ids: Vec<String> = "ImageId",
    include_deprecated: Option<bool> = "IncludeDeprecated",
    max_results: Option<i32> = "MaxResults",
    next_token: Option<String> = "NextToken",
    owners: Vec<String> = "Owner",
});

shape!(DescribeImagesResponse {
    images: Vec<Image> = "imagesSet",
    next_token: Option<String> = "nextToken",
});

shape!(DescribeInstanceStatusRequest {
    dry_run: Option<bool> = "DryRun",
    filters: Vec<Filter> = "Filter",
    include_all_instances: Option<bool> = "IncludeAllInstances",
    instance_ids: Vec<String> = "InstanceId",
    max_results: Option<i32> = "MaxResults",
    next_token: Option<String> = "NextToken",
});

shape!(DescribeInstanceStatusResponse {
    instance_statuses: Vec<InstanceStatus> = "instanceStatusSet",
    next_token: Option<String> = "nextToken",
});

shape!(DescribeInstanceTypeOfferingsRequest {
    dry_run: Option<bool> = "DryRun",
    filters: Vec<Filter> = "Filter",
    location_type: Option<String> = "LocationType",
    max_results: Option<i32> = "MaxResults",
    next_token: Option<String> = "NextToken",
});

shape!(DescribeInstanceTypeOfferingsResponse {
    instance_type_offerings: Vec<InstanceTypeOffering> = "instanceTypeOfferingSet",
    next_token: Option<String> = "nextToken",
});

shape!(DescribeInstanceTypesRequest {
    dry_run: Option<bool> = "DryRun",
    filters: Vec<Filter> = "Filter",
    instance_types: Vec<String> = "InstanceType",
    max_results: Option<i32> = "MaxResults",
    next_token: Option<String> = "NextToken",
});

shape!(DescribeInstanceTypesResponse {
    instance_types: Vec<InstanceTypeInfo> = "instanceTypeSet",
    next_token: Option<String> = "nextToken",
});

shape!(DescribeInstancesRequest {
    dry_run: Option<bool> = "DryRun",
    filters: Vec<Filter> = "Filter",
    instance_ids: Vec<String> = "InstanceId",
    max_results: Option<i32> = "MaxResults",
    next_token: Option<String> = "NextToken",
});

shape!(DescribeInstancesResponse {
    next_token: Option<String> = "nextToken",
    reservations: Vec<Reservation> = "reservationSet",
});

shape!(DescribeLaunchTemplatesRequest {
    dry_run: Option<bool> = "DryRun",
    filters: Vec<Filter> = "Filter",
    launch_template_ids: Vec<String> = "LaunchTemplateId",
    launch_template_names: Vec<String> = "LaunchTemplateName",
    max_results: Option<i32> = "MaxResults",
    next_token: Option<String> = "NextToken",
});

shape!(DescribeLaunchTemplatesResponse {
    launch_templates: Vec<LaunchTemplate> = "launchTemplates",
    next_token: Option<String> = "nextToken",
});

shape!(DescribePlacementGroupsRequest {
    dry_run: Option<bool> = "DryRun",
    filters: Vec<Filter> = "Filter",
    group_ids: Vec<String> = "GroupId",
    group_names: Vec<String> = "GroupName",
});

shape!(DescribePlacementGroupsResponse {
    placement_groups: Vec<PlacementGroup> = "placementGroupSet",
});

shape!(DescribeSecurityGroupsRequest {
    dry_run: Option<bool> = "DryRun",
    filters: Vec<Filter> = "Filter",
    group_ids: Vec<String> = "GroupId",
    group_names: Vec<String> = "GroupName",
    max_results: Option<i32> = "MaxResults",
    next_token: Option<String> = "NextToken",
});

shape!(DescribeSecurityGroupsResponse {
    next_token: Option<String> = "nextToken",
    security_groups: Vec<SecurityGroup> = "securityGroupInfo",
});

shape!(DescribeSpotPriceHistoryRequest {
    availability_zone: Option<String> = "AvailabilityZone",
    dry_run: Option<bool> = "DryRun",
    end_time: Option<Timestamp> = "EndTime",
    filters: Vec<Filter> = "Filter",
    instance_types: Vec<String> = "InstanceType",
    max_results: Option<i32> = "MaxResults",
    next_token: Option<String> = "NextToken",
    product_descriptions: Vec<String> = "ProductDescription",
    start_time: Option<Timestamp> = "StartTime",
});

shape!(DescribeSpotPriceHistoryResponse {
    next_token: Option<String> = "nextToken",
    spot_price_history: Vec<SpotPrice> = "spotPriceHistorySet",
});

shape!(DescribeSubnetsRequest {
    dry_run: Option<bool> = "DryRun",
    filters: Vec<Filter> = "Filter",
    max_results: Option<i32> = "MaxResults",
    next_token: Option<String> = "NextToken",
    subnet_ids: Vec<String> = "SubnetId",
});

shape!(DescribeSubnetsResponse {
    next_token: Option<String> = "nextToken",
    subnets: Vec<Subnet> = "subnetSet",
});

shape!(DiskInfo {
    count: Option<i32> = "count",
    size_in_gb: Option<i64> = "sizeInGB",
    r#type: Option<String> = "type",
});

shape!(EbsInfo {
    ebs_optimized_info: Option<EbsOptimizedInfo> = "ebsOptimizedInfo",
    ebs_optimized_support: Option<String> = "ebsOptimizedSupport",
});

shape!(EbsOptimizedInfo {
    baseline_bandwidth_in_mbps: Option<i32> = "baselineBandwidthInMbps",
    maximum_bandwidth_in_mbps: Option<i32> = "maximumBandwidthInMbps",
});

shape!(EfaInfo {
    maximum_efa_interfaces: Option<i32> = "maximumEfaInterfaces",
});

shape!(Filter {
    name: Option<String> = "Name",
    values: Vec<String> = "Value",
});

shape!(FleetLaunchTemplateConfigRequest {
    launch_template_specification: Option<FleetLaunchTemplateSpecificationRequest> = "LaunchTemplateSpecification",
    overrides: Vec<FleetLaunchTemplateOverridesRequest> = "Overrides",
});

shape!(FleetLaunchTemplateOverrides {
    availability_zone: Option<String> = "availabilityZone",
    availability_zone_id: Option<String> = "availabilityZoneId",
    image_id: Option<String> = "imageId",
    instance_type: Option<String> = "instanceType",
    priority: Option<f64> = "priority",
    subnet_id: Option<String> = "subnetId",
});

shape!(FleetLaunchTemplateOverridesRequest {
    availability_zone: Option<String> = "AvailabilityZone",
    image_id: Option<String> = "ImageId",
    instance_type: Option<String> = "InstanceType",
    priority: Option<f64> = "Priority",
    subnet_id: Option<String> = "SubnetId",
});

shape!(FleetLaunchTemplateSpecification {
    launch_template_id: Option<String> = "launchTemplateId",
    launch_template_name: Option<String> = "launchTemplateName",
    version: Option<String> = "version",
});

shape!(FleetLaunchTemplateSpecificationRequest {
    launch_template_id: Option<String> = "LaunchTemplateId",
    launch_template_name: Option<String> = "LaunchTemplateName",
    version: Option<String> = "Version",
});

shape!(GetConsoleOutputRequest {
    dry_run: Option<bool> = "DryRun",
    instance_id: Option<String> = "InstanceId",
    latest: Option<bool> = "Latest",
});

shape!(GetConsoleOutputResponse {
    instance_id: Option<String> = "instanceId",
    output: Option<String> = "output",
    timestamp: Option<Timestamp> = "timestamp",
});

shape!(GpuDeviceInfo {
    count: Option<i32> = "count",
    manufacturer: Option<String> = "manufacturer",
    memory_info: Option<GpuDeviceMemoryInfo> = "memoryInfo",
    name: Option<String> = "name",
});

shape!(GpuDeviceMemoryInfo {
    size_in_mib: Option<i32> = "sizeInMiB",
});

shape!(GpuInfo {
    gpus: Vec<GpuDeviceInfo> = "gpus",
});

shape!(GroupIdentifier {
    group_id: Option<String> = "groupId",
    group_name: Option<String> = "groupName",
});

shape!(IamInstanceProfile {
    arn: Option<String> = "arn",
    id: Option<String> = "id",
});

shape!(Image {
    architecture: Option<String> = "architecture",
    creation_date: Option<String> = "creationDate",
    deprecation_time: Option<String> = "deprecationTime",
    image_id: Option<String> = "imageId",
    name: Option<String> = "name",
    owner_id: Option<String> = "imageOwnerId",
    platform: Option<String> = "platform",
    platform_details: Option<String> = "platformDetails",
    public: Option<bool> = "isPublic",
    state: Option<String> = "imageState",
    tags: Vec<Tag> = "tagSet",
});

shape!(InferenceAcceleratorInfo {
    accelerators: Vec<InferenceDeviceInfo> = "accelerators",
});

shape!(InferenceDeviceInfo {
    count: Option<i32> = "count",
    manufacturer: Option<String> = "manufacturer",
    name: Option<String> = "name",
});

shape!(Instance {
    architecture: Option<String> = "architecture",
    capacity_block_id: Option<String> = "capacityBlockId",
    capacity_reservation_id: Option<String> = "capacityReservationId",
    capacity_reservation_specification: Option<CapacityReservationSpecificationResponse> = "capacityReservationSpecification",
    client_token: Option<String> = "clientToken",
    iam_instance_profile: Option<IamInstanceProfile> = "iamInstanceProfile",
    image_id: Option<String> = "imageId",
    instance_id: Option<String> = "instanceId",
    instance_lifecycle: Option<String> = "instanceLifecycle",
    instance_type: Option<String> = "instanceType",
    launch_time: Option<Timestamp> = "launchTime",
    network_interfaces: Vec<InstanceNetworkInterface> = "networkInterfaceSet",
    placement: Option<Placement> = "placement",
    private_dns_name: Option<String> = "privateDnsName",
    private_ip_address: Option<String> = "privateIpAddress",
    security_groups: Vec<GroupIdentifier> = "groupSet",
    spot_instance_request_id: Option<String> = "spotInstanceRequestId",
    state: Option<InstanceState> = "instanceState",
    state_reason: Option<StateReason> = "stateReason",
    state_transition_reason: Option<String> = "reason",
    subnet_id: Option<String> = "subnetId",
    tags: Vec<Tag> = "tagSet",
    vpc_id: Option<String> = "vpcId",
});

shape!(InstanceMetadataOptionsRequest {
    http_endpoint: Option<String> = "HttpEndpoint",
    http_protocol_ipv6: Option<String> = "HttpProtocolIpv6",
    http_put_response_hop_limit: Option<i32> = "HttpPutResponseHopLimit",
    http_tokens: Option<String> = "HttpTokens",
    instance_metadata_tags: Option<String> = "InstanceMetadataTags",
});

shape!(InstanceNetworkInterface {
    groups: Vec<GroupIdentifier> = "groupSet",
    interface_type: Option<String> = "interfaceType",
    network_interface_id: Option<String> = "networkInterfaceId",
    subnet_id: Option<String> = "subnetId",
});

shape!(InstanceNetworkInterfaceSpecification {
    associate_public_ip_address: Option<bool> = "AssociatePublicIpAddress",
    device_index: Option<i32> = "DeviceIndex",
    groups: Vec<String> = "SecurityGroupId",
    interface_type: Option<String> = "InterfaceType",
    network_card_index: Option<i32> = "NetworkCardIndex",
    subnet_id: Option<String> = "SubnetId",
});

shape!(InstanceState {
    code: Option<i32> = "code",
    name: Option<String> = "name",
});

shape!(InstanceStateChange {
    current_state: Option<InstanceState> = "currentState",
    instance_id: Option<String> = "instanceId",
    previous_state: Option<InstanceState> = "previousState",
});

shape!(InstanceStatus {
    availability_zone: Option<String> = "availabilityZone",
    availability_zone_id: Option<String> = "availabilityZoneId",
    events: Vec<InstanceStatusEvent> = "eventsSet",
    instance_id: Option<String> = "instanceId",
    instance_state: Option<InstanceState> = "instanceState",
    instance_status: Option<InstanceStatusSummary> = "instanceStatus",
    system_status: Option<InstanceStatusSummary> = "systemStatus",
});

shape!(InstanceStatusDetails {
    impaired_since: Option<Timestamp> = "impairedSince",
    name: Option<String> = "name",
    status: Option<String> = "status",
});

shape!(InstanceStatusEvent {
    code: Option<String> = "code",
    description: Option<String> = "description",
    instance_event_id: Option<String> = "instanceEventId",
    not_after: Option<Timestamp> = "notAfter",
    not_before: Option<Timestamp> = "notBefore",
    not_before_deadline: Option<Timestamp> = "notBeforeDeadline",
});

shape!(InstanceStatusSummary {
    details: Vec<InstanceStatusDetails> = "details",
    status: Option<String> = "status",
});

shape!(InstanceStorageInfo {
    disks: Vec<DiskInfo> = "disks",
    nvme_support: Option<String> = "nvmeSupport",
    total_size_in_gb: Option<i64> = "totalSizeInGB",
});

shape!(InstanceTypeInfo {
    bare_metal: Option<bool> = "bareMetal",
    current_generation: Option<bool> = "currentGeneration",
    ebs_info: Option<EbsInfo> = "ebsInfo",
    gpu_info: Option<GpuInfo> = "gpuInfo",
    hypervisor: Option<String> = "hypervisor",
    inference_accelerator_info: Option<InferenceAcceleratorInfo> = "inferenceAcceleratorInfo",
    instance_storage_info: Option<InstanceStorageInfo> = "instanceStorageInfo",
    instance_storage_supported: Option<bool> = "instanceStorageSupported",
    instance_type: Option<String> = "instanceType",
    memory_info: Option<MemoryInfo> = "memoryInfo",
    network_info: Option<NetworkInfo> = "networkInfo",
    neuron_info: Option<NeuronInfo> = "neuronInfo",
    nitro_enclaves_support: Option<String> = "nitroEnclavesSupport",
    placement_group_info: Option<PlacementGroupInfo> = "placementGroupInfo",
    processor_info: Option<ProcessorInfo> = "processorInfo",
    supported_usage_classes: Vec<String> = "supportedUsageClasses",
    supported_virtualization_types: Vec<String> = "supportedVirtualizationTypes",
    vcpu_info: Option<VCpuInfo> = "vCpuInfo",
});

shape!(InstanceTypeOffering {
    instance_type: Option<String> = "instanceType",
    location: Option<String> = "location",
    location_type: Option<String> = "locationType",
});

shape!(LaunchTemplate {
    create_time: Option<Timestamp> = "createTime",
    default_version_number: Option<i64> = "defaultVersionNumber",
    latest_version_number: Option<i64> = "latestVersionNumber",
    launch_template_id: Option<String> = "launchTemplateId",
    launch_template_name: Option<String> = "launchTemplateName",
    tags: Vec<Tag> = "tagSet",
});

shape!(LaunchTemplateAndOverridesResponse {
    launch_template_specification: Option<FleetLaunchTemplateSpecification> = "launchTemplateSpecification",
    overrides: Option<FleetLaunchTemplateOverrides> = "overrides",
});

shape!(LaunchTemplateBlockDeviceMappingRequest {
    device_name: Option<String> = "DeviceName",
    ebs: Option<LaunchTemplateEbsBlockDeviceRequest> = "Ebs",
    no_device: Option<String> = "NoDevice",
    virtual_name: Option<String> = "VirtualName",
});

shape!(LaunchTemplateCapacityReservationSpecificationRequest {
    capacity_reservation_preference: Option<String> = "CapacityReservationPreference",
    capacity_reservation_target: Option<CapacityReservationTarget> = "CapacityReservationTarget",
});

shape!(LaunchTemplateCpuOptionsRequest {
    nested_virtualization: Option<String> = "NestedVirtualization",
});

shape!(LaunchTemplateEbsBlockDeviceRequest {
    delete_on_termination: Option<bool> = "DeleteOnTermination",
    encrypted: Option<bool> = "Encrypted",
    iops: Option<i32> = "Iops",
    kms_key_id: Option<String> = "KmsKeyId",
    snapshot_id: Option<String> = "SnapshotId",
    throughput: Option<i32> = "Throughput",
    volume_initialization_rate: Option<i32> = "VolumeInitializationRate",
    volume_size: Option<i32> = "VolumeSize",
    volume_type: Option<String> = "VolumeType",
});

shape!(LaunchTemplateEnclaveOptionsRequest {
    enabled: Option<bool> = "Enabled",
});

shape!(LaunchTemplateIamInstanceProfileSpecificationRequest {
    arn: Option<String> = "Arn",
    name: Option<String> = "Name",
});

shape!(LaunchTemplateInstanceMarketOptionsRequest {
    market_type: Option<String> = "MarketType",
});

shape!(LaunchTemplateInstanceMetadataOptionsRequest {
    http_endpoint: Option<String> = "HttpEndpoint",
    http_protocol_ipv6: Option<String> = "HttpProtocolIpv6",
    http_put_response_hop_limit: Option<i32> = "HttpPutResponseHopLimit",
    http_tokens: Option<String> = "HttpTokens",
    instance_metadata_tags: Option<String> = "InstanceMetadataTags",
});

shape!(LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
    associate_public_ip_address: Option<bool> = "AssociatePublicIpAddress",
    connection_tracking_specification: Option<ConnectionTrackingSpecificationRequest> = "ConnectionTrackingSpecification",
    delete_on_termination: Option<bool> = "DeleteOnTermination",
    description: Option<String> = "Description",
    device_index: Option<i32> = "DeviceIndex",
    groups: Vec<String> = "SecurityGroupId",
    interface_type: Option<String> = "InterfaceType",
    ipv4_prefix_count: Option<i32> = "Ipv4PrefixCount",
    ipv6_address_count: Option<i32> = "Ipv6AddressCount",
    ipv6_prefix_count: Option<i32> = "Ipv6PrefixCount",
    network_card_index: Option<i32> = "NetworkCardIndex",
    primary_ipv6: Option<bool> = "PrimaryIpv6",
    subnet_id: Option<String> = "SubnetId",
});

shape!(LaunchTemplatePlacementRequest {
    availability_zone: Option<String> = "AvailabilityZone",
    group_id: Option<String> = "GroupId",
    group_name: Option<String> = "GroupName",
    partition_number: Option<i32> = "PartitionNumber",
    tenancy: Option<String> = "Tenancy",
});

shape!(LaunchTemplateSpecification {
    launch_template_id: Option<String> = "LaunchTemplateId",
    launch_template_name: Option<String> = "LaunchTemplateName",
    version: Option<String> = "Version",
});

shape!(LaunchTemplateTagSpecificationRequest {
    resource_type: Option<String> = "ResourceType",
    tags: Vec<Tag> = "Tag",
});

shape!(LaunchTemplatesMonitoringRequest {
    enabled: Option<bool> = "Enabled",
});

shape!(MemoryInfo {
    size_in_mib: Option<i64> = "sizeInMiB",
});

shape!(NetworkCardInfo {
    baseline_bandwidth_in_gbps: Option<f64> = "baselineBandwidthInGbps",
    maximum_network_interfaces: Option<i32> = "maximumNetworkInterfaces",
    network_card_index: Option<i32> = "networkCardIndex",
    network_performance: Option<String> = "networkPerformance",
    peak_bandwidth_in_gbps: Option<f64> = "peakBandwidthInGbps",
});

shape!(NetworkInfo {
    default_network_card_index: Option<i32> = "defaultNetworkCardIndex",
    efa_info: Option<EfaInfo> = "efaInfo",
    efa_supported: Option<bool> = "efaSupported",
    ena_support: Option<String> = "enaSupport",
    encryption_in_transit_supported: Option<bool> = "encryptionInTransitSupported",
    ipv4_addresses_per_interface: Option<i32> = "ipv4AddressesPerInterface",
    ipv6_addresses_per_interface: Option<i32> = "ipv6AddressesPerInterface",
    ipv6_supported: Option<bool> = "ipv6Supported",
    maximum_network_cards: Option<i32> = "maximumNetworkCards",
    maximum_network_interfaces: Option<i32> = "maximumNetworkInterfaces",
    network_cards: Vec<NetworkCardInfo> = "networkCards",
    network_performance: Option<String> = "networkPerformance",
});

shape!(NeuronDeviceCoreInfo {
    count: Option<i32> = "count",
    version: Option<i32> = "version",
});

shape!(NeuronDeviceInfo {
    core_info: Option<NeuronDeviceCoreInfo> = "coreInfo",
    count: Option<i32> = "count",
    memory_info: Option<NeuronDeviceMemoryInfo> = "memoryInfo",
    name: Option<String> = "name",
});

shape!(NeuronDeviceMemoryInfo {
    size_in_mib: Option<i32> = "sizeInMiB",
});

shape!(NeuronInfo {
    neuron_devices: Vec<NeuronDeviceInfo> = "neuronDevices",
});

shape!(OnDemandOptionsRequest {
    allocation_strategy: Option<String> = "AllocationStrategy",
    capacity_reservation_options: Option<CapacityReservationOptionsRequest> = "CapacityReservationOptions",
});

shape!(Placement {
    availability_zone: Option<String> = "availabilityZone",
    availability_zone_id: Option<String> = "availabilityZoneId",
    group_id: Option<String> = "groupId",
    group_name: Option<String> = "groupName",
    partition_number: Option<i32> = "partitionNumber",
    tenancy: Option<String> = "tenancy",
});

shape!(PlacementGroup {
    group_arn: Option<String> = "groupArn",
    group_id: Option<String> = "groupId",
    group_name: Option<String> = "groupName",
    partition_count: Option<i32> = "partitionCount",
    spread_level: Option<String> = "spreadLevel",
    state: Option<String> = "state",
    strategy: Option<String> = "strategy",
    tags: Vec<Tag> = "tagSet",
});

shape!(PlacementGroupInfo {
    supported_strategies: Vec<String> = "supportedStrategies",
});

shape!(ProcessorInfo {
    manufacturer: Option<String> = "manufacturer",
    supported_architectures: Vec<String> = "supportedArchitectures",
    supported_features: Vec<String> = "supportedFeatures",
    sustained_clock_speed_in_ghz: Option<f64> = "sustainedClockSpeedInGhz",
});

shape!(RequestLaunchTemplateData {
    block_device_mappings: Vec<LaunchTemplateBlockDeviceMappingRequest> = "BlockDeviceMapping",
    capacity_reservation_specification: Option<LaunchTemplateCapacityReservationSpecificationRequest> = "CapacityReservationSpecification",
    cpu_options: Option<LaunchTemplateCpuOptionsRequest> = "CpuOptions",
    ebs_optimized: Option<bool> = "EbsOptimized",
    enclave_options: Option<LaunchTemplateEnclaveOptionsRequest> = "EnclaveOptions",
    iam_instance_profile: Option<LaunchTemplateIamInstanceProfileSpecificationRequest> = "IamInstanceProfile",
    image_id: Option<String> = "ImageId",
    instance_market_options: Option<LaunchTemplateInstanceMarketOptionsRequest> = "InstanceMarketOptions",
    instance_type: Option<String> = "InstanceType",
    metadata_options: Option<LaunchTemplateInstanceMetadataOptionsRequest> = "MetadataOptions",
    monitoring: Option<LaunchTemplatesMonitoringRequest> = "Monitoring",
    network_interfaces: Vec<LaunchTemplateInstanceNetworkInterfaceSpecificationRequest> = "NetworkInterface",
    placement: Option<LaunchTemplatePlacementRequest> = "Placement",
    security_group_ids: Vec<String> = "SecurityGroupId",
    tag_specifications: Vec<LaunchTemplateTagSpecificationRequest> = "TagSpecification",
    user_data: Option<String> = "UserData",
});

shape!(Reservation {
    instances: Vec<Instance> = "instancesSet",
    reservation_id: Option<String> = "reservationId",
});

shape!(ReservedCapacityOptionsRequest {
    reservation_types: Vec<String> = "ReservationType",
});

shape!(RunInstancesRequest {
    client_token: Option<String> = "ClientToken",
    dry_run: Option<bool> = "DryRun",
    image_id: Option<String> = "ImageId",
    instance_type: Option<String> = "InstanceType",
    launch_template: Option<LaunchTemplateSpecification> = "LaunchTemplate",
    max_count: Option<i32> = "MaxCount",
    metadata_options: Option<InstanceMetadataOptionsRequest> = "MetadataOptions",
    min_count: Option<i32> = "MinCount",
    network_interfaces: Vec<InstanceNetworkInterfaceSpecification> = "NetworkInterface",
    subnet_id: Option<String> = "SubnetId",
    tag_specifications: Vec<TagSpecification> = "TagSpecification",
});

shape!(RunInstancesResponse {
    instances: Vec<Instance> = "instancesSet",
    reservation_id: Option<String> = "reservationId",
});

shape!(SecurityGroup {
    group_id: Option<String> = "groupId",
    group_name: Option<String> = "groupName",
    owner_id: Option<String> = "ownerId",
    tags: Vec<Tag> = "tagSet",
    vpc_id: Option<String> = "vpcId",
});

shape!(SpotOptionsRequest {
    allocation_strategy: Option<String> = "AllocationStrategy",
});

shape!(SpotPrice {
    availability_zone: Option<String> = "availabilityZone",
    availability_zone_id: Option<String> = "availabilityZoneId",
    instance_type: Option<String> = "instanceType",
    product_description: Option<String> = "productDescription",
    spot_price: Option<String> = "spotPrice",
    timestamp: Option<Timestamp> = "timestamp",
});

shape!(StateReason {
    code: Option<String> = "code",
    message: Option<String> = "message",
});

shape!(Subnet {
    availability_zone: Option<String> = "availabilityZone",
    availability_zone_id: Option<String> = "availabilityZoneId",
    available_ip_address_count: Option<i32> = "availableIpAddressCount",
    cidr_block: Option<String> = "cidrBlock",
    map_public_ip_on_launch: Option<bool> = "mapPublicIpOnLaunch",
    owner_id: Option<String> = "ownerId",
    state: Option<String> = "state",
    subnet_id: Option<String> = "subnetId",
    tags: Vec<Tag> = "tagSet",
    vpc_id: Option<String> = "vpcId",
});

shape!(Tag {
    key: Option<String> = "Key" | "key",
    value: Option<String> = "Value" | "value",
});

shape!(TagSpecification {
    resource_type: Option<String> = "ResourceType",
    tags: Vec<Tag> = "Tag",
});

shape!(TargetCapacitySpecificationRequest {
    default_target_capacity_type: Option<String> = "DefaultTargetCapacityType",
    total_target_capacity: Option<i32> = "TotalTargetCapacity",
});

shape!(TerminateInstancesRequest {
    dry_run: Option<bool> = "DryRun",
    instance_ids: Vec<String> = "InstanceId",
});

shape!(TerminateInstancesResponse {
    terminating_instances: Vec<InstanceStateChange> = "instancesSet",
});

shape!(VCpuInfo {
    default_cores: Option<i32> = "defaultCores",
    default_threads_per_core: Option<i32> = "defaultThreadsPerCore",
    default_vcpus: Option<i32> = "defaultVCpus",
});
