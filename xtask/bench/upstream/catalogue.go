package main

import (
	"errors"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

var errCatalogue = errors.New("upstream's benchmark catalogue is not the one of the problem")

// catalogue is upstream's own where the problem is one of its benchmark, and what the file says where it is not.
func catalogue(ours []InstanceType) ([]*cloudprovider.InstanceType, error) {
	if len(ours) > 0 && !strings.HasPrefix(ours[0].Name, "fake-it-") {
		return described(ours), nil
	}
	theirs := fake.InstanceTypes(len(ours))
	return theirs, sameCatalogue(theirs, ours)
}

func described(ours []InstanceType) []*cloudprovider.InstanceType {
	types := make([]*cloudprovider.InstanceType, 0, len(ours))
	for _, one := range ours {
		requirements := scheduling.NewRequirements()
		for key, values := range one.Labels {
			operator := corev1.NodeSelectorOpIn
			if len(values) == 0 {
				operator = corev1.NodeSelectorOpDoesNotExist
			}
			requirements.Add(scheduling.NewRequirement(key, operator, values...))
		}
		offerings := cloudprovider.Offerings{}
		for _, terms := range one.Offerings {
			offerings = append(offerings, &cloudprovider.Offering{
				Requirements: scheduling.NewLabelRequirements(map[string]string{
					v1.CapacityTypeLabelKey:  terms.CapacityType,
					corev1.LabelTopologyZone: terms.Zone,
				}),
				Price:     terms.Price,
				Available: true,
			})
		}
		types = append(types, &cloudprovider.InstanceType{
			Name:         one.Name,
			Requirements: requirements,
			Offerings:    offerings,
			Capacity:     one.Capacity,
			Overhead:     &cloudprovider.InstanceTypeOverhead{KubeReserved: one.Overhead},
		})
	}
	return types
}

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
