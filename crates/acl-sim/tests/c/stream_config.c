/* Streams from a description, and what they tell of themselves. */
#include "check.h"

int main(void)
{
    uint32_t flags = 1, priority = 3, told = 99;
    int32_t id = -1;
    aclrtStream stream;
    aclrtStreamAttrValue value = {{1, 0, 0, 0}};
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    void *description = aclrtCreateStreamConfigHandle();
    TRUE(description != NULL);
    OK(aclrtSetStreamConfigOpt(description, 2, &flags, sizeof flags));
    OK(aclrtSetStreamConfigOpt(description, 3, &priority, sizeof priority));
    CODE(107000, aclrtSetStreamConfigOpt(description, 3, &priority, 1));
    CODE(107000, aclrtSetStreamConfigOpt(description, 9, &priority, sizeof priority));
    OK(aclrtCreateStreamV2(&stream, description));
    OK(aclrtStreamGetId(stream, &id));
    TRUE(id >= 0);
    OK(aclrtStreamGetFlags(stream, &told));
    TRUE(told == 1);
    OK(aclrtStreamGetPriority(stream, &told));
    TRUE(told == 3);
    OK(aclrtSetStreamAttribute(stream, 3, &value));
    value.words[0] = 0;
    OK(aclrtGetStreamAttribute(stream, 3, &value));
    TRUE(value.words[0] == 1);
    CODE(107000, aclrtCreateStreamWithConfig(&stream, 0, 0x1000));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyStream(stream));
    OK(aclrtDestroyStreamConfigHandle(description));
    CODE(107000, aclrtDestroyStreamConfigHandle(description));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
