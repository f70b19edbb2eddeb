//! How much room a pod takes.

use k8s_openapi::api::core::v1 as k8s;

use crate::quantity::Quantity;
use crate::resources::{CPU, HUGEPAGES_PREFIX, MEMORY, PODS, Resources, ResourcesError};

/// The requests that the Kubernetes scheduler would reserve, and one of `pods`.
///
/// Containers and sidecars add up. An ordinary init container runs beside the sidecars that started before
/// it, so the sum of those is a floor. Amounts set for the whole pod take the place of the sum. While
/// a resize is under way a container counts with the largest of what it asks for, was given and uses.
pub fn requests(
    spec: &k8s::PodSpec,
    status: Option<&k8s::PodStatus>,
) -> Result<Resources, ResourcesError> {
    let resize_is_infeasible = status.is_some_and(resize_is_infeasible);
    let statuses = |of_init: bool| {
        status.and_then(|status| {
            if of_init {
                status.init_container_statuses.as_deref()
            } else {
                status.container_statuses.as_deref()
            }
        })
    };
    let mut total = Resources::new();
    for container in &spec.containers {
        total.add(&actuated(container, statuses(false), resize_is_infeasible)?);
    }
    let mut sidecars = Resources::new();
    let mut starting = Resources::new();
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            let amounts = actuated(container, statuses(true), resize_is_infeasible)?;
            total.add(&amounts);
            sidecars.add(&amounts);
            starting = starting.max(&sidecars);
        } else {
            starting = starting.max(&requested(container.resources.as_ref())?.plus(&sidecars));
        }
    }
    total = total.max(&starting);
    for (name, amount) in requested(spec.resources.as_ref())?.iter() {
        if matches!(name, CPU | MEMORY) || name.starts_with(HUGEPAGES_PREFIX) {
            total.set(name, amount);
        }
    }
    if let Some(overhead) = &spec.overhead {
        total.add(&Resources::from_api(overhead)?);
    }
    total.set(PODS, Quantity::from_units(1));
    Ok(total)
}

/// Copies limits into missing requests, as the API server does for pods but not for pod templates.
pub fn with_limits_as_requests(spec: &mut k8s::PodSpec) {
    let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    for resources in containers.filter_map(|container| container.resources.as_mut()) {
        let limits = resources.limits.clone().unwrap_or_default();
        let requests = resources.requests.get_or_insert_default();
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

fn requested(resources: Option<&k8s::ResourceRequirements>) -> Result<Resources, ResourcesError> {
    match resources.and_then(|resources| resources.requests.as_ref()) {
        Some(requests) => Resources::from_api(requests),
        None => Ok(Resources::new()),
    }
}

fn actuated(
    container: &k8s::Container,
    statuses: Option<&[k8s::ContainerStatus]>,
    resize_is_infeasible: bool,
) -> Result<Resources, ResourcesError> {
    let asked = requested(container.resources.as_ref())?;
    let status = statuses.into_iter().flatten().find(|status| status.name == container.name);
    let Some(status) = status.filter(|status| status.resources.is_some()) else {
        return Ok(asked);
    };
    let given = match &status.allocated_resources {
        Some(allocated) => Resources::from_api(allocated)?,
        None => Resources::new(),
    };
    let held = requested(status.resources.as_ref())?.max(&given);
    Ok(if resize_is_infeasible { held } else { held.max(&asked) })
}

fn resize_is_infeasible(status: &k8s::PodStatus) -> bool {
    status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible")
    })
}
