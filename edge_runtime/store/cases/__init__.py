"""Cases that were kept for people to look at: windows with what the device, the cloud and a person say of them."""
