//! The instance types of all classes. A list takes tens of megabytes, and most classes differ in what no type depends on: tags,
//! user data, roles, security groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use kerf_model::InstanceType;

use super::{ClassTypes, Inputs};
use crate::catalogue::Region;
use crate::instance_types::{ClassShape, DiscoveredMemory, Settings};
use crate::offerings::Market;

/// The types of all classes, by the name of the class. Classes of one shape that know the same of memory share one list.
#[derive(Debug, Default)]
pub struct TypesOfClasses {
    /// By class: the number of its shape.
    classes: BTreeMap<String, u64>,
    pub(super) shapes: BTreeMap<u64, Shaped>,
    next: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Shaped {
    shape: ClassShape,
    memory: DiscoveredMemory,
    types: ClassTypes,
}

impl TypesOfClasses {
    /// The class is like this from now on.
    pub fn set(&mut self, class: &str, shape: ClassShape, memory: DiscoveredMemory) {
        let same = |one: &Shaped| one.shape == shape && one.memory == memory;
        let before = self.classes.get(class).copied();
        let known = self.shapes.iter().find(|(_, one)| same(one)).map(|(number, _)| *number);
        let number = known.unwrap_or_else(|| {
            self.next += 1;
            // The types that stay as they were are those that the class had before.
            let types = before.and_then(|before| self.shapes.get(&before));
            let types = types.map(|before| before.types.clone()).unwrap_or_default();
            self.shapes.insert(self.next, Shaped { shape, memory, types });
            self.next
        });
        self.classes.insert(class.to_owned(), number);
        self.drop_unused(before);
    }

    pub fn forget(&mut self, class: &str) {
        let before = self.classes.remove(class);
        self.drop_unused(before);
    }

    /// The types of a class as of now; `None` for one that was not set.
    pub fn refresh(
        &mut self,
        class: &str,
        region: &Arc<Region>,
        settings: &Settings,
        market: Market<'_>,
    ) -> Option<&Arc<[Arc<InstanceType>]>> {
        let Shaped { shape, memory, types } = self.shapes.get_mut(self.classes.get(class)?)?;
        Some(types.refresh(Inputs { region, shape, settings, memory }, market))
    }

    /// As they were last made.
    pub fn last(&self, class: &str) -> Option<&Arc<[Arc<InstanceType>]>> {
        let shaped = self.shapes.get(self.classes.get(class)?)?;
        Some(shaped.types.last())
    }

    fn drop_unused(&mut self, number: Option<u64>) {
        if let Some(number) = number
            && !self.classes.values().any(|used| *used == number)
        {
            self.shapes.remove(&number);
        }
    }
}
