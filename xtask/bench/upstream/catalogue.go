package main

import (
	"errors"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/sets"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

var errCatalogue = errors.New("upstream's benchmark catalogue is not the one of the problem")

// sameCatalogue makes sure that both sides choose from the same instance types.
func sameCatalogue(theirs []*cloudprovider.InstanceType, ours []InstanceType) error {
	for i, expect := range ours {
		if err := sameType(theirs[i], expect); err != nil {
			return fmt.Errorf("%w: %s: %w", errCatalogue, expect.Name, err)
		}
	}
	return nil
}

func sameType(theirs *cloudprovider.InstanceType, ours InstanceType) error {
	if theirs.Name != ours.Name {
		return fmt.Errorf("is named %s", theirs.Name)
	}
	for name, amount := range ours.Capacity {
		if got := theirs.Capacity[name]; got.Cmp(amount) != 0 {
			return fmt.Errorf("has %s of %s", got.String(), name)
		}
	}
	overhead := theirs.Overhead.Total()
	for name, amount := range ours.Overhead {
		if got := overhead[name]; got.Cmp(amount) != 0 {
			return fmt.Errorf("keeps %s of %s", got.String(), name)
		}
	}
	for key, values := range ours.Labels {
		if got := theirs.Requirements.Get(key); !sets.New(got.Values()...).Equal(sets.New(values...)) {
			return fmt.Errorf("has %s", got)
		}
	}
	if len(theirs.Offerings) != len(ours.Offerings) {
		return fmt.Errorf("has %d offerings", len(theirs.Offerings))
	}
	for i, expect := range ours.Offerings {
		got := theirs.Offerings[i]
		if got.CapacityType() != expect.CapacityType || got.Zone() != expect.Zone || math.Abs(got.Price-expect.Price) > 1e-9 {
			return fmt.Errorf("offers %s in %s for %f", got.CapacityType(), got.Zone(), got.Price)
		}
	}
	return nil
}
